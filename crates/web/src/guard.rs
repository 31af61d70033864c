//! What every request passes first: the host that it names, where it comes from, and who asks.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sanwire_server::Asker;

use crate::accounts::{NoOwner, Owner, Proof};
use crate::app::App;
use crate::caller::{Caller, Peer, Role, token_expired};
use crate::extract::{BodyMax, is_json};
use crate::limits::BODY_OF_STRANGER_MAX_BYTES;
use crate::problem::Problem;
use crate::routes::first_page::PLACES;

/// What needs no account, from wherever it is asked.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// What somebody asks to be known.
const OPEN_TO_LOG_IN: [&str; 2] = ["/api/v1/session", "/api/v1/bootstrap"];

/// What needs none on this host.
const OPEN_HERE: [&str; 3] = ["/metrics", "/openapi.json", "/api/v1/openapi.json"];

/// Lets a request pass, with its caller, or refuses it.
pub(crate) async fn guard(State(app): State<Arc<App>>, mut request: Request<Body>, next: Next) -> Response {
    let mut response = match admit(&app, &mut request) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            if request.headers().contains_key(header::AUTHORIZATION) {
                app.note_wrong_token(request.extensions().get()).await;
            }
            problem.into_response()
        }
    };
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(nothing);
    response
}

impl App {
    /// Writes down that somebody has shown a token that does not hold; of each network a few of them.
    async fn note_wrong_token(&self, peer: Option<&Peer>) {
        let Some(peer) = peer.filter(|peer| self.accounts.may_note(&peer.source())) else { return };
        let (desk, by) = (Arc::clone(&self.management.desk), Asker::Stranger { address: peer.to_string() });
        // Where there is too much to do, that is left out.
        let asker = by.clone();
        let _ = self.management.work(&asker, move || desk.note_refused(&by, "a token by HTTP")).await;
    }
}

fn admit(app: &App, request: &mut Request<Body>) -> Result<(), Problem> {
    let peer = request.extensions().get::<Peer>().cloned().ok_or_else(|| Problem::defect("nobody knows who asks"))?;
    if let Peer::Tcp { .. } = peer {
        let host = host_of(request)?;
        check_host(app, &host)?;
        check_origin(request, &host, &peer)?;
    }
    let caller = identify(app, request, &peer)?;
    let path = request.uri().path();
    let is_log_in = request.method() == Method::POST && OPEN_TO_LOG_IN.contains(&path);
    let is_open =
        OPEN.contains(&path) || PLACES.contains(&path) || is_log_in || OPEN_HERE.contains(&path) && peer.is_local();
    if caller.is_none() && !is_open {
        return Err(Problem::new("unauthenticated", "log in first, or give a token"));
    }
    app.operations.check(request)?;
    match caller {
        Some(caller) => _ = request.extensions_mut().insert(caller),
        None => _ = request.extensions_mut().insert(BodyMax(BODY_OF_STRANGER_MAX_BYTES)),
    }
    Ok(())
}

/// Who asks: by a token, by a cookie, or by what the system says of a process.
fn identify(app: &App, request: &Request<Body>, peer: &Peer) -> Result<Option<Caller>, Problem> {
    let headers = request.headers();
    if let Some(given) = headers.get(header::AUTHORIZATION) {
        let given = given.to_str().ok().and_then(|given| given.split_once(' '));
        let token = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let proof = token.and_then(Proof::of_token);
        return match proof.map_or(Err(NoOwner::Unknown), |proof| caller_by(app, proof, peer)) {
            Ok(caller) => Ok(Some(caller)),
            Err(NoOwner::Expired) => Err(token_expired()),
            Err(NoOwner::Unknown) => {
                Err(Problem::new("unauthenticated", "this token is not known, or holds no longer"))
            }
        };
    }
    if let Peer::Unix { uid, pid } = peer {
        // Nobody else can open the socket, unless somebody has changed its mode.
        if *uid != 0 && *uid != rustix::process::geteuid().as_raw() {
            return Ok(None);
        }
        let asker = Asker::Process { uid: *uid, pid: *pid };
        return Ok(Some(Caller { asker, role: Role::Administrator, pools: Vec::new(), proof: None }));
    }
    let name = cookie_name(peer);
    let mut proofs: Vec<Proof> = cookies(headers, &name).map(Proof::of_session).collect();
    proofs.dedup();
    // Another server of this host may have set one of that name, which means nothing here.
    let mut callers = proofs.into_iter().filter_map(|proof| caller_by(app, proof, peer).ok());
    let (Some(caller), another) = (callers.next(), callers.next()) else { return Ok(None) };
    if another.is_some() {
        return Err(Problem::invalid("there are two sessions: remove the cookies of this server, and log in again"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        check_page(headers)?;
    }
    Ok(Some(caller))
}

fn caller_by(app: &App, proof: Proof, peer: &Peer) -> Result<Caller, NoOwner> {
    let (owner, address) = (app.accounts.owner(&proof)?, peer.to_string());
    let role = owner.role();
    let (asker, pools) = match owner {
        Owner::User(user, _) => (Asker::User { user, address }, Vec::new()),
        Owner::Token(token, _, pools) => (Asker::Token { token, address }, pools),
    };
    Ok(Caller { asker, role, pools, proof: Some(proof) })
}

/// A browser gives the cookie to whatever page asks: a change must show that it comes from this server's own. That no other origin is
/// named is known already.
fn check_page(headers: &HeaderMap) -> Result<(), Problem> {
    if !headers.contains_key("sec-fetch-site") && !headers.contains_key(header::ORIGIN) {
        return Err(Problem::new("origin-foreign", "a change by a cookie must say its origin: use a token elsewhere"));
    }
    if !is_json(headers) {
        return Err(Problem::new("content-type-unsupported", "give Content-Type: application/json"));
    }
    Ok(())
}

/// The name of the cookie of sessions. With the prefix, browsers take it from this host over TLS only.
/// Cookies know no ports, so it says which one it is for.
pub(crate) fn cookie_name(peer: &Peer) -> String {
    match peer {
        Peer::Tcp { is_encrypted: true, port, .. } => format!("__Host-sanwire-{port}"),
        Peer::Tcp { port, .. } => format!("sanwire-{port}"),
        Peer::Unix { .. } => "sanwire".to_owned(),
    }
}

/// What the cookies of that name say.
pub(crate) fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value)
}

/// The host that the request is for: HTTP/2 has an authority, and may have that header besides (RFC 9113 8.3.1). Who names two is
/// meant by somebody between here and there for the other one.
fn host_of(request: &Request<Body>) -> Result<String, Problem> {
    let headers = request.headers().get_all(header::HOST).into_iter();
    let headers = headers.map(|host| host.to_str().unwrap_or_default());
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let mut hosts = authority.into_iter().chain(headers).map(str::to_ascii_lowercase);
    let host = hosts.next().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| Problem::invalid("the request names no host: give it a Host header"))?;
    if hosts.any(|other| other != host) {
        return Err(Problem::invalid("the request names two hosts: give it one Host header, that of its URL"));
    }
    Ok(host)
}

/// A name that is not the server's is that of a page elsewhere, which has made its own name lead here. Addresses cannot be used so.
fn check_host(app: &App, host: &str) -> Result<(), Problem> {
    let name = without_port(host);
    if name.parse::<IpAddr>().is_ok() || name == "localhost" || app.hosts.iter().any(|own| own == name) {
        return Ok(());
    }
    let shown: String = name.chars().take(128).collect();
    let detail = format!("this server is not called {shown:?}: add it to `http-hosts` in the configuration if it is");
    Err(Problem::new("host-unknown", detail))
}

/// A page of another origin may not ask anything.
fn check_origin(request: &Request<Body>, host: &str, peer: &Peer) -> Result<(), Problem> {
    let foreign = || Problem::new("origin-foreign", "a page of another origin may not use this server");
    let text = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    if text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(foreign());
    }
    let Some(origin) = text("origin") else { return Ok(()) };
    let origin: Uri = origin.parse().map_err(|_| foreign())?;
    let is_own = origin.authority().is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host));
    // What came without TLS may be from anybody on the way.
    let is_guarded = !peer.is_encrypted() || origin.scheme_str() == Some("https");
    if is_own && is_guarded { Ok(()) } else { Err(foreign()) }
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_without_its_port() {
        for (host, name) in [
            ("localhost:5674", "localhost"),
            ("box", "box"),
            ("[::1]:5674", "::1"),
            ("[::1]", "::1"),
            ("127.0.0.1:80", "127.0.0.1"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}

//! Who asks: first log-in, log-in and log-out.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json as Body};
use sanwire_server::Asker;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Changed;
use super::accounts::{PASSWORD_BYTES, check_name, check_password, push_user};
use crate::accounts::{Contents, Hash, SESSION_TIME, Secret, UserRecord};
use crate::app::App;
use crate::caller::{Caller, Peer, Role};
use crate::extract::Json;
use crate::guard::{cookie_name, cookies};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(bootstrap)).routes(routes!(session, log_in, log_out))
}

/// Who asks.
#[derive(Serialize, ToSchema)]
struct Session {
    /// The user, the token, or the process.
    name: String,
    /// What it may do.
    role: Role,
}

/// A name and its password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LogIn {
    /// The user.
    name: String,
    /// The password.
    #[schema(format = Password)]
    password: String,
}

/// The first administrator.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Bootstrap {
    /// The code of the link that `sanwire serve` or `sanwire ctl web-login` prints.
    code: String,
    /// The user, who is made, or for whom the link is.
    name: String,
    /// The password.
    #[schema(format = Password, min_length = 10, max_length = 256)]
    password: String,
}

/// Make the first administrator, or choose another password
///
/// By the code of a link that `sanwire serve` or `sanwire ctl web-login` prints, which holds for ten minutes, until there is an administrator or
/// the password is another one. Logs in as well.
#[utoipa::path(post, path = "/bootstrap", tag = "accounts", security(()), request_body = Bootstrap, responses((status = 201, description = "The user is there, and logged in.", body = Session)))]
async fn bootstrap(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Json(Bootstrap { code, name, password }): Json<Bootstrap>,
) -> Result<Response, Problem> {
    check_name(&name)?;
    check_password(&password)?;
    let by = Asker::Stranger { address: peer.to_string() };
    let may_try = app.accounts.may_try_code(&peer.source());
    let is_first = app.accounts.is_code(&code);
    if !may_try || !is_first && !app.accounts.is_code_for(&code, &name) {
        return Err(app.refuse_log_in(&by, "a first log-in by HTTP", may_try).await);
    }
    let hash = app.accounts.hashing.hash(password).await?;
    let user = UserRecord { name: name.clone(), role: Role::Administrator, password: hash.clone() };
    let line = match is_first {
        true => format!("user {name} is an administrator, by a one-time link"),
        false => format!("user {name} has another password, by a one-time link"),
    };
    let accounts = Arc::clone(&app.accounts);
    let edit = move |contents: &mut Contents| {
        // Another one may have used it meanwhile.
        match contents.users.iter_mut().find(|known| known.name == user.name) {
            _ if accounts.is_code(&code) => return push_user(contents, user),
            Some(known) if accounts.is_code_for(&code, &user.name) => known.password = user.password,
            _ => return Err(refused()),
        }
        Ok(())
    };
    let _ = app.edit_by(&by, line, edit).await?;
    app.counts.note_log_in("done");
    answer(&peer, &name, app.accounts.begin_session(&name, &hash))
}

/// Who asks
#[utoipa::path(get, path = "/session", tag = "accounts", responses((status = 200, description = "Who asks.", body = Session)))]
async fn session(caller: Caller) -> Body<Session> {
    let name = match &caller.asker {
        Asker::User { user, .. } => user.clone(),
        Asker::Token { token, .. } => token.clone(),
        asker => asker.to_string(),
    };
    Body(Session { name, role: caller.role })
}

/// Log in
///
/// The answer sets a cookie, which holds for twelve hours.
#[utoipa::path(post, path = "/session", tag = "accounts", security(()), request_body = LogIn, responses((status = 201, description = "The user is logged in.", body = Session)))]
async fn log_in(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Json(LogIn { name, password }): Json<LogIn>,
) -> Result<Response, Problem> {
    let by = Asker::Stranger { address: peer.to_string() };
    if name.len() > 64 || password.len() > *PASSWORD_BYTES.end() {
        return Err(refused());
    }
    if !app.accounts.may_try(&name, &peer.source()) {
        return Err(app.refuse_log_in(&by, "a log-in by HTTP", false).await);
    }
    let hash = app.accounts.contents().user(&name).map(|user| user.password.clone());
    let is_right = app.accounts.hashing.is_right(password, hash.clone()).await?;
    match hash {
        Some(hash) if is_right => app.begin_session(&peer, name, hash).await,
        Some(_) => Err(app.refuse_log_in(&by, &format!("a log-in by HTTP as {name:?}"), true).await),
        // Somebody may have typed the password there.
        None => Err(app.refuse_log_in(&by, "a log-in by HTTP as a user that is not there", true).await),
    }
}

/// Log out
#[utoipa::path(delete, path = "/session", tag = "accounts", responses((status = 200, description = "The session is over.", body = Changed)))]
async fn log_out(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    _caller: Caller,
    headers: HeaderMap,
) -> Response {
    let name = cookie_name(&peer);
    cookies(&headers, &name).for_each(|secret| app.accounts.end_session(secret));
    let over = cookie_of(&peer, "", 0);
    let changed = Changed { changed: vec!["the session is over".to_owned()] };
    ([(header::SET_COOKIE, over)], Body(changed)).into_response()
}

impl App {
    /// Writes down a log-in that was refused; those that come too often are not looked at.
    async fn refuse_log_in(&self, by: &Asker, what: &str, is_looked_at: bool) -> Problem {
        self.counts.note_log_in(if is_looked_at { "refused" } else { "too-often" });
        if !is_looked_at {
            return Problem::new("login-too-often", "too many have tried to log in: wait for a minute");
        }
        let (desk, by, what) = (Arc::clone(&self.management.desk), by.clone(), what.to_owned());
        let asker = by.clone();
        match self.management.work(&asker, move || desk.note_refused(&by, &what)).await {
            Ok(()) => refused(),
            Err(problem) => problem,
        }
    }

    /// Begins the session of a user who has shown this password, and writes that down.
    async fn begin_session(&self, peer: &Peer, user: String, password: Hash) -> Result<Response, Problem> {
        let (accounts, desk) = (Arc::clone(&self.accounts), Arc::clone(&self.management.desk));
        let by = Asker::User { user: user.clone(), address: peer.to_string() };
        let (asker, name) = (by.clone(), user.clone());
        let begin = move || {
            let begun = accounts.begin_session(&user, &password);
            if let Ok(Some(_)) = &begun {
                desk.note_changed(&by, "logged in by HTTP".to_owned());
            }
            begun
        };
        self.counts.note_log_in("done");
        answer(peer, &name, self.management.work(&asker, begin).await?)
    }
}

/// The header that sets the cookie. Browsers take one with this prefix only when it is for TLS, also to forget it.
fn cookie_of(peer: &Peer, secret: &str, seconds: u64) -> String {
    let (name, secure) = (cookie_name(peer), if peer.is_encrypted() { "; Secure" } else { "" });
    format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

fn refused() -> Problem {
    Problem::new("login-refused", "there is no such user or code, or the password is another one")
}

/// Tells of a session that has begun, if one has.
fn answer(peer: &Peer, user: &str, begun: io::Result<Option<(Secret, Role)>>) -> Result<Response, Problem> {
    let (secret, role) = begun.map_err(|_| Problem::defect("no session could begin"))?.ok_or_else(refused)?;
    let text = cookie_of(peer, secret.text(), SESSION_TIME.as_secs());
    let cookie = HeaderValue::try_from(text).map_err(|_| Problem::defect("no session could begin"))?;
    let session = Session { name: user.to_owned(), role };
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Body(session)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_forgotten_as_it_was_set() {
        let address = "192.0.2.1:9".parse().unwrap();
        let peer = |is_encrypted| Peer::Tcp { address, is_encrypted, port: 5674 };
        assert_eq!(
            cookie_of(&peer(true), "", 0),
            "__Host-sanwire-5674=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure"
        );
        assert_eq!(cookie_of(&peer(false), "x", 9), "sanwire-5674=x; Path=/; Max-Age=9; HttpOnly; SameSite=Strict");
    }
}

//! Who may use the API: tokens of programs.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json as Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sanwire_server::written_seconds;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::accounts::{Edit, check_name, check_room, unknown};
use super::{Changed, DryRunQuery, Tagged, check_revision};
use crate::accounts::{Secret, TokenRecord, revision_of};
use crate::app::App;
use crate::caller::{Caller, Role};
use crate::extract::{Json, Path, Query};
use crate::management::Terms;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

/// Pools to which a token is limited, at the most.
const TOKEN_POOLS_MAX: usize = 64;

/// For how long a token may hold that does not hold until it is removed: up to ten years.
const TOKEN_SECONDS: std::ops::RangeInclusive<u64> = 1..=10 * 365 * 24 * 3600;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list_tokens, add_token)).routes(routes!(token, remove_token))
}

/// A token, without its text.
#[derive(Serialize, ToSchema)]
struct Token {
    /// That of this token alone.
    revision: u64,
    /// Its number.
    id: String,
    /// What people call it.
    name: String,
    /// What it may do.
    role: Role,
    /// The pools in which it may change something; none: no such limit.
    pools: Vec<String>,
    /// When it was made, as in RFC 3339.
    made: String,
    /// By whom.
    by: String,
    /// Until when it holds, as in RFC 3339; null: until it is removed.
    expires: Option<String>,
}

/// A new token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    /// What people call it: 1 to 64 letters, digits, `.`, `_`, `-`, `@`.
    name: String,
    /// What it may do.
    role: Role,
    /// The pools in which an operator may change something; none: no such limit.
    #[serde(default)]
    pools: Vec<String>,
    /// For how many seconds it holds, ten years at the most; null: until it is removed.
    #[schema(minimum = 1, maximum = 315_360_000)]
    expires_seconds: Option<u64>,
}

/// A token that was made.
#[derive(Serialize, ToSchema)]
struct MadeToken {
    /// Its number.
    id: String,
    /// What stands behind `Authorization: Bearer`. It is told this once only.
    token: String,
}

impl From<&TokenRecord> for Token {
    fn from(token: &TokenRecord) -> Self {
        let TokenRecord { name, role, pools, digest, made, by, expires } = token.clone();
        let revision = revision_of(token);
        Token { revision, id: digest.id(), name, role, pools, made, by, expires: expires.map(written) }
    }
}

/// The tokens
///
/// Their texts are told to nobody.
#[utoipa::path(get, path = "/tokens", tag = "accounts", params(PageQuery), responses((status = 200, description = "The tokens.", body = Page<Token>)))]
async fn list_tokens(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Body<Page<Token>>, Problem> {
    caller.needs(Role::Administrator)?;
    let tokens = app.accounts.contents().tokens.iter().map(Token::from).collect();
    query.cut(tokens, |token: &Token| token.id.clone()).map(Body)
}

/// A token
///
/// Its text is told to nobody.
#[utoipa::path(get, path = "/tokens/{token}", operation_id = "find_token", tag = "accounts", params(("token" = String, Path, description = "Its number.")), responses((status = 200, description = "The token.", body = Token)))]
async fn token(State(app): State<Arc<App>>, caller: Caller, Path(id): Path<String>) -> Result<Tagged<Token>, Problem> {
    caller.needs(Role::Administrator)?;
    let contents = app.accounts.contents();
    let token = contents.tokens.iter().find(|token| token.digest.id() == id).map(Token::from).ok_or_else(unknown)?;
    Ok(Tagged(token.revision, token))
}

/// Make a token
///
/// For a program: `Authorization: Bearer swt_...`.
#[utoipa::path(post, path = "/tokens", tag = "accounts", request_body = NewToken, params(DryRunQuery), responses(
    (status = 200, description = "It was only told.", body = Changed),
    (status = 201, description = "It is there.", body = MadeToken),
))]
async fn add_token(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(NewToken { name, role, pools, expires_seconds }): Json<NewToken>,
) -> Result<Response, Problem> {
    caller.needs(Role::Administrator)?;
    check_name(&name)?;
    check_pools(role, &pools)?;
    let edit = Edit { least: Role::Administrator, dry_run };
    if dry_run {
        expires_seconds.map(|seconds| end_of(SystemTime::now(), seconds)).transpose()?;
        let line = edit.line(&format!("token {name}"), "is", &format!("there, as {}", role.word()));
        let changed = app.edit(&caller, edit, line, |contents| check_room(contents.tokens.len()));
        return changed.await.map(Body::into_response);
    }
    let secret = Secret::random().map_err(|_| Problem::defect("no token could be drawn"))?;
    let (digest, by) = (secret.digest(), caller.asker.to_string());
    let now = SystemTime::now();
    let (made, expires) = (written_seconds(now), expires_seconds.map(|seconds| end_of(now, seconds)).transpose()?);
    let until = expires.map(|end| format!(", until {}", written(end)));
    let line = format!("token {name} ({}) is there, as {}{}", digest.id(), role.word(), until.unwrap_or_default());
    let _ = app
        .edit(&caller, edit, line, move |contents| {
            check_room(contents.tokens.len())?;
            contents.tokens.push(TokenRecord { name, role, pools, digest, made, by, expires });
            Ok(())
        })
        .await?;
    let location = format!("/api/v1/tokens/{}", digest.id());
    let token = MadeToken { id: digest.id(), token: secret.token() };
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Body(token)).into_response())
}

/// Remove a token
#[utoipa::path(delete, path = "/tokens/{token}", tag = "accounts", params(
    ("token" = String, Path, description = "Its number."),
    ("If-Match" = Option<String>, Header, description = "Only if the token still has this ETag."),
    DryRunQuery,
), responses((status = 200, description = "It holds no longer.", body = Changed)))]
async fn remove_token(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path(id): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Body<Changed>, Problem> {
    caller.needs(Role::Administrator)?;
    let edit = Edit { least: Role::Administrator, dry_run };
    let line = edit.line(&format!("token {id:?}"), "is", "gone");
    let changed = app.edit(&caller, edit, line, move |contents| {
        let token = contents.tokens.iter().find(|token| token.digest.id() == id).ok_or_else(unknown)?;
        check_revision(&terms, revision_of(token), &format!("token {id:?}"))?;
        contents.tokens.retain(|token| token.digest.id() != id);
        Ok(())
    });
    changed.await
}

/// A time in seconds since 1970, as in RFC 3339.
fn written(seconds: u64) -> String {
    written_seconds(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// When a token ends that holds for so long, in seconds since 1970.
fn end_of(now: SystemTime, seconds: u64) -> Result<u64, Problem> {
    if !TOKEN_SECONDS.contains(&seconds) {
        let detail = format!("expires_seconds: a token holds for 1 to {} seconds", TOKEN_SECONDS.end());
        return Err(Problem::new("account-invalid", detail));
    }
    Ok(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() + seconds)
}

/// A token may be limited to pools whose names a server can have.
fn check_pools(role: Role, pools: &[String]) -> Result<(), Problem> {
    let problem = |detail: String| Err(Problem::new("account-invalid", detail));
    if !pools.is_empty() && role != Role::Operator {
        return problem(format!(
            "pools limit what an operator may change: as {} there is nothing to limit",
            role.word()
        ));
    }
    match pools.iter().find(|pool| pool.is_empty() || pool.len() > 64) {
        Some(_) => problem("the name of a pool has 1 to 64 bytes".to_owned()),
        None if pools.len() > TOKEN_POOLS_MAX => {
            problem(format!("a token is limited to {TOKEN_POOLS_MAX} pools at the most"))
        }
        None => Ok(()),
    }
}

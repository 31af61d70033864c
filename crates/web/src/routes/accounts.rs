//! Who may use the API: users.

use std::sync::Arc;

use axum::Json as Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sanwire_server::Asker;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Changed, DryRunQuery, Tagged, check_revision, in_path};
use crate::accounts::{Contents, Hash, TokenRecord, UserRecord, revision_of};
use crate::app::App;
use crate::caller::{Caller, Role};
use crate::extract::{Json, Path, Query};
use crate::management::Terms;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

/// Bytes of a password, at least and at the most.
pub(super) const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 10..=256;

/// Users, and tokens, at the most.
const RECORDS_MAX: usize = 1000;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list_users, add_user)).routes(routes!(user, change_user, remove_user))
}

/// A user.
#[derive(Serialize, ToSchema)]
struct User {
    /// Another one when its role or its password is another.
    revision: u64,
    /// Its name.
    name: String,
    /// What it may do.
    role: Role,
}

impl From<&UserRecord> for User {
    fn from(user: &UserRecord) -> Self {
        User { revision: revision_of(user), name: user.name.clone(), role: user.role }
    }
}

/// A new user.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewUser {
    /// Its name: 1 to 64 letters, digits, `.`, `_`, `-`, `@`.
    name: String,
    /// What it may do.
    role: Role,
    /// Its password.
    #[schema(format = Password, min_length = 10, max_length = 256)]
    password: String,
}

/// A change of a user: what is not said stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1)]
struct UserChange {
    /// What it may do.
    role: Option<Role>,
    /// Its password. Its sessions end.
    #[schema(format = Password, min_length = 10, max_length = 256)]
    password: Option<String>,
    /// The password until now: who has logged in needs it to change their own one.
    #[schema(format = Password)]
    old_password: Option<String>,
}

/// The users
#[utoipa::path(get, path = "/users", tag = "accounts", params(PageQuery), responses((status = 200, description = "The users.", body = Page<User>)))]
async fn list_users(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Body<Page<User>>, Problem> {
    caller.needs(Role::Administrator)?;
    let contents = app.accounts.contents();
    query.cut(contents.users.iter().map(User::from).collect(), |user: &User| user.name.clone()).map(Body)
}

/// A user
#[utoipa::path(get, path = "/users/{user}", operation_id = "find_user", tag = "accounts", params(("user" = String, Path, description = "Its name.")), responses((status = 200, description = "The user.", body = User)))]
async fn user(State(app): State<Arc<App>>, caller: Caller, Path(name): Path<String>) -> Result<Tagged<User>, Problem> {
    caller.needs(Role::Administrator)?;
    let user = app.accounts.contents().user(&name).map(User::from).ok_or_else(unknown)?;
    Ok(Tagged(user.revision, user))
}

/// Make a user
#[utoipa::path(post, path = "/users", tag = "accounts", request_body = NewUser, params(DryRunQuery), responses(
    (status = 200, description = "It was only told.", body = Changed),
    (status = 201, description = "It is there.", body = Changed),
))]
async fn add_user(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(NewUser { name, role, password }): Json<NewUser>,
) -> Result<Response, Problem> {
    caller.needs(Role::Administrator)?;
    check_name(&name)?;
    check_password(&password)?;
    let edit = Edit { least: Role::Administrator, dry_run };
    let line = edit.line(&format!("user {name}"), "is", &format!("there, as {}", role.word()));
    if dry_run {
        let changed = app.edit(&caller, edit, line, move |contents| check_new_user(contents, &name));
        return changed.await.map(Body::into_response);
    }
    let password = app.accounts.hashing.hash(password).await?;
    let location = format!("/api/v1/users/{}", in_path(&name));
    let user = UserRecord { name, role, password };
    let changed = app.edit(&caller, edit, line, move |contents| push_user(contents, user)).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], changed).into_response())
}

/// Change a user
///
/// Who is no administrator may change their own password. It takes the one until now, also of administrators.
#[utoipa::path(patch, path = "/users/{user}", tag = "accounts", params(
    ("user" = String, Path, description = "Its name."),
    ("If-Match" = Option<String>, Header, description = "Only if the user still has this ETag."),
    DryRunQuery,
), request_body = UserChange, responses((status = 200, description = "It was changed.", body = Changed)))]
async fn change_user(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(UserChange { role, password, old_password }): Json<UserChange>,
) -> Result<Body<Changed>, Problem> {
    let is_own = matches!(&caller.asker, Asker::User { user, .. } if *user == name);
    let least = if is_own && role.is_none() { Role::Metrics } else { Role::Administrator };
    caller.needs(least)?;
    if role.is_none() && password.is_none() {
        return Err(Problem::invalid("give a role or a password"));
    }
    if is_own && password.is_some() && !app.accounts.may_change_password(&name) {
        return Err(Problem::new("login-too-often", "the password was changed too often: wait for a minute"));
    }
    password.as_deref().map(check_password).transpose()?;
    // Whoever has found a page open would have the account from then on.
    let known = match (is_own && password.is_some(), old_password) {
        (true, Some(old)) => Some(app.password_of(&name, old).await?),
        (true, None) => return Err(Problem::new("account-invalid", "give old_password, your password until now")),
        (false, Some(_)) => {
            let detail = "old_password: it is for a change of the own password only";
            return Err(Problem::new("account-invalid", detail));
        }
        (false, None) => None,
    };
    let password = match password.filter(|_| !dry_run) {
        Some(password) => Some(app.accounts.hashing.hash(password).await?),
        None => None,
    };
    let edit = Edit { least, dry_run };
    let line = edit.line(&format!("user {name}"), "was", "changed");
    let changed = app.edit(&caller, edit, line, move |contents| {
        let user = contents.users.iter_mut().find(|user| user.name == name).ok_or_else(unknown)?;
        check_revision(&terms, revision_of(user), &format!("user {name}"))?;
        if known.is_some_and(|known| known != user.password) {
            return Err(wrong_password());
        }
        user.role = role.unwrap_or(user.role);
        user.password = password.unwrap_or_else(|| user.password.clone());
        Ok(())
    });
    changed.await
}

/// Remove a user
///
/// Its sessions end. Tokens that it has made are for programs, and hold on: the answer names them.
#[utoipa::path(delete, path = "/users/{user}", tag = "accounts", params(
    ("user" = String, Path, description = "Its name."),
    ("If-Match" = Option<String>, Header, description = "Only if the user still has this ETag."),
    DryRunQuery,
), responses((status = 200, description = "It is gone.", body = Changed)))]
async fn remove_user(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Body<Changed>, Problem> {
    caller.needs(Role::Administrator)?;
    let edit = Edit { least: Role::Administrator, dry_run };
    let (line, maker) = (edit.line(&format!("user {name}"), "is", "gone"), format!("user {name} at "));
    let changed = app.edit(&caller, edit, line, move |contents| {
        let user = contents.user(&name).ok_or_else(unknown)?;
        check_revision(&terms, revision_of(user), &format!("user {name}"))?;
        contents.users.retain(|user| user.name != name);
        Ok(())
    });
    let Body(Changed { mut changed }) = changed.await?;
    let contents = app.accounts.contents();
    let left = contents.tokens.iter().filter(|token| token.by.starts_with(&maker));
    changed.extend(left.map(|TokenRecord { name, digest, .. }| {
        format!("token {name} ({}), which it has made, holds on: remove it if nobody uses it", digest.id())
    }));
    Ok(Body(Changed { changed }))
}

fn wrong_password() -> Problem {
    Problem::new("not-permitted", "old_password: that is not your password")
}

pub(super) fn unknown() -> Problem {
    Problem::new("account-unknown", "there is no such user or token")
}

pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    let is_name = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte))
        // In a path these lead elsewhere.
        && !matches!(name, "." | "..");
    let problem = || {
        Problem::new(
            "account-invalid",
            "a name has 1 to 64 letters, digits, '.', '_', '-', '@', and is not '.' or '..'",
        )
    };
    if is_name { Ok(()) } else { Err(problem()) }
}

pub(super) fn check_password(password: &str) -> Result<(), Problem> {
    let (least, most) = PASSWORD_BYTES.into_inner();
    let problem = || Problem::new("account-invalid", format!("a password has {least} to {most} bytes"));
    if (least..=most).contains(&password.len()) { Ok(()) } else { Err(problem()) }
}

pub(super) fn check_room(held: usize) -> Result<(), Problem> {
    let problem = || Problem::new("account-invalid", format!("there are {RECORDS_MAX} already: remove one first"));
    if held < RECORDS_MAX { Ok(()) } else { Err(problem()) }
}

fn check_new_user(contents: &Contents, name: &str) -> Result<(), Problem> {
    if contents.user(name).is_some() {
        return Err(Problem::new("account-exists", format!("there is a user {name} already")));
    }
    check_room(contents.users.len())
}

pub(super) fn push_user(contents: &mut Contents, user: UserRecord) -> Result<(), Problem> {
    check_new_user(contents, &user.name)?;
    contents.users.push(user);
    Ok(())
}

/// How accounts are changed.
#[derive(Clone, Copy)]
pub(super) struct Edit {
    /// The role that this takes.
    pub(super) least: Role,
    /// Whether it is only told what would be done.
    pub(super) dry_run: bool,
}

impl Edit {
    /// What is done, or would be, for people.
    pub(super) fn line(self, subject: &str, done: &str, what: &str) -> String {
        format!("{subject} {} {what}", if self.dry_run { "would be" } else { done })
    }
}

impl App {
    /// What is kept of the password of a user who knows it.
    async fn password_of(&self, user: &str, password: String) -> Result<Hash, Problem> {
        let known = self.accounts.contents().user(user).map(|user| user.password.clone());
        let is_right = self.accounts.hashing.is_right(password, known.clone()).await?;
        known.filter(|_| is_right).ok_or_else(wrong_password)
    }

    /// Changes accounts in the name of a caller, who must have this role still when it is done.
    pub(super) async fn edit(
        &self,
        caller: &Caller,
        Edit { least, dry_run }: Edit,
        line: String,
        edit: impl FnOnce(&mut Contents) -> Result<(), Problem> + Send + 'static,
    ) -> Result<Body<Changed>, Problem> {
        let (accounts, again) = (Arc::clone(&self.accounts), caller.clone());
        let edit = move |contents: &mut Contents| {
            again.again(&accounts)?.needs(least)?;
            edit(contents)
        };
        if !dry_run {
            return self.edit_by(&caller.asker, line, edit).await;
        }
        let accounts = Arc::clone(&self.accounts);
        self.management.work(&caller.asker, move || accounts.rehearse(edit)).await??;
        Ok(Body(Changed { changed: vec![line] }))
    }

    /// Changes accounts, and writes down who has changed what. Once begun, all of that is done, also when nobody waits any more.
    pub(super) async fn edit_by(
        &self,
        by: &Asker,
        line: String,
        edit: impl FnOnce(&mut Contents) -> Result<(), Problem> + Send + 'static,
    ) -> Result<Body<Changed>, Problem> {
        let (accounts, desk) = (Arc::clone(&self.accounts), Arc::clone(&self.management.desk));
        let (by, noted) = (by.clone(), line.clone());
        let asker = by.clone();
        let change = move || accounts.change(edit, || desk.note_changed(&by, noted));
        self.management.work(&asker, change).await??;
        Ok(Body(Changed { changed: vec![line] }))
    }
}

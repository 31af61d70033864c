//! Who may use the API: people with passwords, and programs with tokens.
//!
//! All of it stands in one file, which is replaced as a whole. Sessions and the code of the first log-in are kept in memory only.

mod attempts;
mod file;
mod password;
mod secret;
mod sessions;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sanwire_server::replace_file;

pub use self::file::FileError;
pub(crate) use self::file::{Contents, TokenRecord, UserRecord, revision_of};
pub(crate) use self::password::{Hash, Hashing};
pub(crate) use self::secret::{Digest, Secret};
pub(crate) use self::sessions::SESSION_TIME;

use self::attempts::Attempts;
use self::sessions::Sessions;
use crate::caller::Role;
use crate::problem::Problem;

/// So long the code of a first log-in can be used.
const CODE_TIME: Duration = Duration::from_secs(600);

/// Why nothing can be kept.
const NO_PLACE: &str = "the server has no state directory";

/// The accounts of a server.
pub(crate) struct Accounts {
    /// Where they are kept; `None` when the server has no place for state.
    path: Option<PathBuf>,
    /// Held by who changes what is kept, also while that is written.
    change: Mutex<()>,
    state: Mutex<State>,
    begun: Instant,
    pub(crate) hashing: Hashing,
}

#[derive(Default)]
struct State {
    contents: Arc<Contents>,
    sessions: Sessions,
    code: Option<Code>,
    attempts: Attempts,
}

/// What lets somebody choose a password, once.
struct Code {
    digest: Digest,
    until: Instant,
    /// Whose password that is; of none, it makes the first administrator.
    user: Option<String>,
}

/// By what somebody has shown who they are. It is looked at again before anything is done for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proof {
    /// The cookie of a session.
    Session(Digest),
    /// A token.
    Token(Digest),
}

impl Proof {
    /// What a cookie proves.
    pub(crate) fn of_session(secret: &str) -> Self {
        Proof::Session(Digest::of(secret))
    }

    /// What a token proves; `None` when it is not written as one.
    pub(crate) fn of_token(text: &str) -> Option<Self> {
        text.strip_prefix(secret::TOKEN_PREFIX).map(|secret| Proof::Token(Digest::of(secret)))
    }
}

/// Whom a secret belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// A user, by its name.
    User(String, Role),
    /// A program, by the name of its token, with the pools to which that is limited.
    Token(String, Role, Vec<String>),
}

/// Why a secret belongs to nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoOwner {
    /// There is none such, or none any more.
    Unknown,
    /// It is a token whose time is over.
    Expired,
}

impl Owner {
    /// What it may do.
    pub(crate) fn role(&self) -> Role {
        match self {
            Owner::User(_, role) | Owner::Token(_, role, _) => *role,
        }
    }
}

impl Accounts {
    /// The accounts that are kept there.
    ///
    /// # Errors
    /// [`FileError`]: then nobody is let in by what may be wrong.
    pub(crate) fn load(path: Option<PathBuf>) -> Result<Self, FileError> {
        let contents = path.as_deref().map(file::read).transpose()?.unwrap_or_default();
        let state = State { contents: Arc::new(contents), ..State::default() };
        Ok(Accounts {
            path,
            change: Mutex::default(),
            state: Mutex::new(state),
            begun: Instant::now(),
            hashing: Hashing::new(),
        })
    }

    /// All that is kept, as it is now.
    pub(crate) fn contents(&self) -> Arc<Contents> {
        Arc::clone(&self.lock().contents)
    }

    /// Looks at a change, and makes none.
    ///
    /// # Errors
    /// Why it would be refused, as far as that is known without keeping it.
    pub(crate) fn rehearse(&self, edit: impl FnOnce(&mut Contents) -> Result<(), Problem>) -> Result<(), Problem> {
        self.path.as_deref().ok_or_else(|| not_kept(NO_PLACE))?;
        edited(&self.contents(), edit).map(drop)
    }

    /// Changes what is kept, and then has that noted; when it cannot be kept, nothing has changed. It writes a file.
    pub(crate) fn change(
        &self,
        edit: impl FnOnce(&mut Contents) -> Result<(), Problem>,
        note: impl FnOnce(),
    ) -> Result<(), Problem> {
        let _changing = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path.as_deref().ok_or_else(|| not_kept(NO_PLACE))?;
        let contents = edited(&self.contents(), edit)?;
        let text = file::written(&contents).map_err(|error| not_kept(&error.to_string()))?;
        let kept = replace_file(path, &text);
        let is_there = kept.is_ok() || file::has(path, &contents);
        if is_there {
            self.lock().take_over(contents);
            note();
        }
        kept.map_err(|error| match is_there {
            true => Problem::new(
                "not-kept",
                format!("it was changed, but may be lost with the power: {}: {error}", path.display()),
            ),
            false => not_kept(&format!("{}: {error}", path.display())),
        })
    }

    /// A new code by which this user chooses another password, or somebody becomes the first administrator; the one before holds no
    /// longer. `None` when there is no such user, when there is an administrator, or no place to keep one.
    pub(crate) fn new_code(&self, user: Option<&str>) -> std::io::Result<Option<Secret>> {
        let code = Secret::random()?;
        let mut state = self.lock();
        let has_use = match user {
            Some(user) => state.contents.user(user).is_some(),
            None => !state.contents.has_administrator(),
        };
        if self.path.is_none() || !has_use {
            return Ok(None);
        }
        let until = Instant::now() + CODE_TIME;
        state.code = Some(Code { digest: code.digest(), until, user: user.map(str::to_owned) });
        Ok(Some(code))
    }

    /// Whether it is the code that makes the first administrator. It holds until there is one.
    pub(crate) fn is_code(&self, code: &str) -> bool {
        self.is_code_of(code, None)
    }

    /// Whether it is the code by which this user chooses another password. It holds until that is done.
    pub(crate) fn is_code_for(&self, code: &str, user: &str) -> bool {
        self.is_code_of(code, Some(user))
    }

    fn is_code_of(&self, code: &str, user: Option<&str>) -> bool {
        let digest = Digest::of(code);
        let state = self.lock();
        let holds = |own: &&Code| own.digest == digest && Instant::now() < own.until && own.user.as_deref() == user;
        state.code.as_ref().filter(holds).is_some()
    }

    /// Whether one more token that does not hold is written down for this network.
    pub(crate) fn may_note(&self, source: &str) -> bool {
        let now = sanwire_core::Instant::ZERO + self.begun.elapsed();
        self.lock().attempts.take_note(source, now)
    }

    /// Whether one more log-in may be tried for this account, and from there.
    pub(crate) fn may_try(&self, account: &str, source: &str) -> bool {
        self.lock().attempts.take(account, source, self.now())
    }

    /// The same with the code of the first administrator: only from there, since nobody guesses one.
    pub(crate) fn may_try_code(&self, source: &str) -> bool {
        self.lock().attempts.take_code(source, self.now())
    }

    /// Whether a user may change their own password once more, which is work.
    pub(crate) fn may_change_password(&self, user: &str) -> bool {
        self.lock().attempts.take_password(user, self.now())
    }

    fn now(&self) -> sanwire_core::Instant {
        sanwire_core::Instant::ZERO + self.begun.elapsed()
    }

    /// A new session of a user who has shown the password of which this is kept, and the user's role; `None` when that is the
    /// password no longer.
    pub(crate) fn begin_session(&self, user: &str, password: &Hash) -> std::io::Result<Option<(Secret, Role)>> {
        let secret = Secret::random()?;
        let mut state = self.lock();
        let role = state.contents.user(user).filter(|user| user.password == *password).map(|user| user.role);
        let Some(role) = role else { return Ok(None) };
        state.sessions.begin(secret.digest(), user, Instant::now());
        Ok(Some((secret, role)))
    }

    pub(crate) fn end_session(&self, secret: &str) {
        self.lock().sessions.end(&Digest::of(secret));
    }

    /// Whose it is, and what they may do now.
    ///
    /// # Errors
    /// [`NoOwner`].
    pub(crate) fn owner(&self, proof: &Proof) -> Result<Owner, NoOwner> {
        let mut state = self.lock();
        match proof {
            Proof::Session(digest) => {
                let user = state.sessions.find(digest, Instant::now()).ok_or(NoOwner::Unknown)?;
                let role = state.contents.user(&user).ok_or(NoOwner::Unknown)?.role;
                Ok(Owner::User(user, role))
            }
            Proof::Token(digest) => {
                let token = state.contents.tokens.iter().find(|token| token.digest == *digest);
                match token.ok_or(NoOwner::Unknown)? {
                    token if token.is_over(SystemTime::now()) => Err(NoOwner::Expired),
                    token => Ok(Owner::Token(token.name.clone(), token.role, token.pools.clone())),
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// From now on these are the accounts. What came by a password that is gone ends, and so does the code once it has no use.
    fn take_over(&mut self, contents: Contents) {
        let before = std::mem::replace(&mut self.contents, Arc::new(contents));
        let is_same = |old: &UserRecord| self.contents.user(&old.name).is_some_and(|new| new.password == old.password);
        let ended: Vec<&UserRecord> = before.users.iter().filter(|old| !is_same(old)).collect();
        let (has_first, is_ended) =
            (self.contents.has_administrator(), |user: &str| ended.iter().any(|old| old.name == user));
        self.code.take_if(|code| code.user.as_deref().map_or(has_first, is_ended));
        ended.into_iter().for_each(|old| self.sessions.end_of(&old.name));
    }
}

/// What a change makes of what is kept.
fn edited(before: &Contents, edit: impl FnOnce(&mut Contents) -> Result<(), Problem>) -> Result<Contents, Problem> {
    let mut contents = before.clone();
    edit(&mut contents)?;
    if before.has_administrator() && !contents.has_administrator() {
        return Err(Problem::new("account-last", "this is the last administrator: make another one first"));
    }
    Ok(contents)
}

fn not_kept(reason: &str) -> Problem {
    Problem::new("not-kept", format!("nothing was changed, since it could not be kept: {reason}"))
}

#[cfg(test)]
mod tests;

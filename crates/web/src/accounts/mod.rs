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
use std::time::{Duration, Instant};

use sanwire_server::replace_file;

pub use self::file::FileError;
pub(crate) use self::file::{Contents, TokenRecord, UserRecord};
pub(crate) use self::password::{Hash, Hashing};
pub(crate) use self::secret::{Digest, Secret};
pub(crate) use self::sessions::SESSION_TIME;

use self::attempts::Attempts;
use self::sessions::Sessions;
use crate::caller::Role;
use crate::problem::Problem;

/// So long the code of a first log-in can be used.
const CODE_TIME: Duration = Duration::from_secs(600);

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
    /// What makes an administrator without an account, and until when.
    code: Option<(Digest, Instant)>,
    attempts: Attempts,
}

/// Whom a secret belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// A user, by its name.
    User(String, Role),
    /// A program, by the name of its token.
    Token(String, Role),
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

    /// Changes what is kept; when it cannot be kept, nothing has changed. It writes a file.
    pub(crate) fn change<T>(&self, edit: impl FnOnce(&mut Contents) -> Result<T, Problem>) -> Result<T, Problem> {
        let not_kept = |reason: String| {
            Problem::new("not-kept", format!("nothing was changed, since it could not be kept: {reason}"))
        };
        let _changing = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path.as_deref().ok_or_else(|| not_kept("the server has no state directory".into()))?;
        let mut contents = Contents::clone(&self.contents());
        let done = edit(&mut contents)?;
        let text = file::written(&contents).map_err(|error| not_kept(error.to_string()))?;
        replace_file(path, &text).map_err(|error| not_kept(format!("{}: {error}", path.display())))?;
        self.lock().contents = Arc::new(contents);
        Ok(done)
    }

    /// A new code by which somebody becomes an administrator, once; the one before holds no longer.
    pub(crate) fn new_code(&self) -> std::io::Result<Secret> {
        let code = Secret::random()?;
        self.lock().code = Some((code.digest(), Instant::now() + CODE_TIME));
        Ok(code)
    }

    /// Uses the code up.
    pub(crate) fn take_code(&self, code: &str) -> bool {
        let mut state = self.lock();
        let is_right =
            state.code.as_ref().is_some_and(|(digest, until)| *digest == Digest::of(code) && Instant::now() < *until);
        if is_right {
            state.code = None;
        }
        is_right
    }

    /// Whether one more log-in may be tried for this account, and from there.
    pub(crate) fn may_try(&self, account: &str, source: &str) -> bool {
        let now = sanwire_core::Instant::ZERO + self.begun.elapsed();
        self.lock().attempts.take(account, source, now)
    }

    /// A new session of a user.
    pub(crate) fn begin_session(&self, user: &str) -> std::io::Result<Secret> {
        let secret = Secret::random()?;
        self.lock().sessions.begin(secret.digest(), user, Instant::now());
        Ok(secret)
    }

    pub(crate) fn end_session(&self, secret: &str) {
        self.lock().sessions.end(&Digest::of(secret));
    }

    /// Ends the sessions of a user that is gone, or has another password.
    pub(crate) fn end_sessions_of(&self, user: &str) {
        self.lock().sessions.end_of(user);
    }

    /// Whose session it is.
    pub(crate) fn session(&self, secret: &str) -> Option<Owner> {
        let mut state = self.lock();
        let user = state.sessions.find(&Digest::of(secret), Instant::now())?;
        let role = state.contents.user(&user)?.role;
        Some(Owner::User(user, role))
    }

    /// Whose token it is.
    pub(crate) fn token(&self, secret: &str) -> Option<Owner> {
        let contents = self.contents();
        let digest = Digest::of(secret.strip_prefix(secret::TOKEN_PREFIX)?);
        let token = contents.tokens.iter().find(|token| token.digest == digest)?;
        Some(Owner::Token(token.name.clone(), token.role))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

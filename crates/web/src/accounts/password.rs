//! Passwords, stretched by Argon2id. That takes time and much memory, so it is done in two threads at the most, and in no more than half
//! of the processors.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::secret::random;
use crate::limits::{HASHED_MAX, HASHED_WAITING_MAX};
use crate::problem::Problem;

/// The cost (RFC 9106 4, second recommendation): memory in KiB, passes, lanes.
const COST: (u32, u32, u32) = (64 << 10, 3, 4);

const SALT_BYTES: usize = 16;

const HASH_BYTES: usize = 32;

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hash {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    salt: String,
    hash: String,
}

impl Hash {
    fn of(password: &str) -> io::Result<Self> {
        let (memory_kib, passes, lanes) = COST;
        let salt = HEXLOWER.encode(&random::<SALT_BYTES>()?);
        let mut hash = Hash { memory_kib, passes, lanes, salt, hash: String::new() };
        hash.hash = HEXLOWER.encode(&hash.stretched(password)?);
        Ok(hash)
    }

    fn is_of(&self, password: &str) -> bool {
        let kept = HEXLOWER.decode(self.hash.as_bytes()).unwrap_or_default();
        self.stretched(password).is_ok_and(|own| verify_slices_are_equal(&own, &kept).is_ok())
    }

    fn stretched(&self, password: &str) -> io::Result<[u8; HASH_BYTES]> {
        let mut out = [0; HASH_BYTES];
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(HASH_BYTES));
        let argon = params.map(|params| Argon2::new(Algorithm::Argon2id, Version::V0x13, params));
        let done =
            argon.and_then(|argon| argon.hash_password_into(password.as_bytes(), self.salt.as_bytes(), &mut out));
        done.map(|()| out).map_err(|error| io::Error::other(error.to_string()))
    }
}

/// So many passwords are stretched at a time: where there are few processors, others are left some.
fn threads() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    (processors / 2).clamp(1, HASHED_MAX)
}

/// Where passwords are stretched.
pub(crate) struct Hashing {
    threads: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Hashing {
    pub(super) fn new() -> Self {
        Hashing {
            threads: Arc::new(Semaphore::new(threads())),
            places: Arc::new(Semaphore::new(HASHED_MAX + HASHED_WAITING_MAX)),
        }
    }

    /// What is to be kept of a password.
    pub(crate) async fn hash(&self, password: String) -> Result<Hash, Problem> {
        let hash = self.work(move || Hash::of(&password)).await?;
        hash.map_err(|_| Problem::defect("the password could not be stretched"))
    }

    /// Whether it is this password. Where there is none, that takes as long, and it is not.
    pub(crate) async fn is_right(&self, password: String, hash: Option<Hash>) -> Result<bool, Problem> {
        self.work(move || match hash {
            Some(hash) => hash.is_of(&password),
            None => Hash::of(&password).is_err(),
        })
        .await
    }

    async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        let too_many = || Problem::new("login-too-often", "too many log in at once: try again");
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| too_many())?;
        let thread = Arc::clone(&self.threads).acquire_owned().await.map_err(|_| too_many())?;
        let work = move || {
            // Given back when the work is over, also when nobody waits for it any more.
            let _held = (place, thread);
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| Problem::defect("a password could not be looked at"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Poll;

    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;

    #[test]
    fn a_storm_of_log_ins_stretches_few_passwords_at_a_time_and_lets_few_wait() {
        let hashing = Hashing::new();
        let ((begun, has_begun), (go, going)) = (mpsc::channel(), mpsc::channel::<()>());
        let going = Arc::new(std::sync::Mutex::new(going));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let most = HASHED_MAX + HASHED_WAITING_MAX;
        runtime.block_on(async {
            let all = (0..100).map(|_| {
                let (begun, going) = (begun.clone(), Arc::clone(&going));
                Box::pin(hashing.work(move || {
                    begun.send(()).unwrap();
                    // Until the sender is gone.
                    let _ = going.lock().unwrap().recv();
                }))
            });
            // All have asked before the first one may end: none gets a place that another one had.
            let (mut waiting, mut refused) = (Vec::new(), Vec::new());
            for mut work in all {
                match poll!(&mut work) {
                    Poll::Ready(ended) => refused.push(ended.unwrap_err().code),
                    Poll::Pending => waiting.push(work),
                }
            }
            assert_eq!(waiting.len(), most);
            assert!(refused.iter().all(|code| *code == "login-too-often"), "{refused:?}");
            (0..threads()).for_each(|_| has_begun.recv().unwrap());
            assert!(has_begun.try_recv().is_err(), "more are stretched at a time than there are threads");
            drop(go);
            assert!(join_all(waiting).await.iter().all(Result::is_ok));
            assert_eq!(has_begun.try_iter().count(), most - threads());
        });
        assert_eq!(runtime.block_on(hashing.work(|| 7)).unwrap(), 7, "and then there is room again");
    }
}

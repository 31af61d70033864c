//! Attempts that are made again: on a busy machine a thread is halted for seconds now and then, and takes the other end for gone.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use sanwire_initiator::{Client, ClientOptions, ConnectError, Url};

/// Nothing here takes so long unless it never happens.
const LIMIT: Duration = Duration::from_secs(60);

/// What comes of it when it fails no more in this way.
pub fn persist<T, E: Debug>(mut attempt: impl FnMut() -> Result<T, E>, is_passing: impl Fn(&E) -> bool) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        match attempt() {
            Err(error) if is_passing(&error) && Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            result => return result.unwrap(),
        }
    }
}

/// What a client is told that is not taken, in the end with these words: its patience may have ended before it knew why.
pub fn refusal(url: &Url, options: &ClientOptions, words: &str) -> String {
    let until = Instant::now() + LIMIT;
    loop {
        let told = match Client::connect(url, options) {
            Err(error @ ConnectError::Handshake { .. }) => error.to_string(),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{url} was taken"),
        };
        if told.contains(words) || Instant::now() > until {
            return told;
        }
    }
}

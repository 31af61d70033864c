//! One question to everybody who may be meant, and the answers: how servers are found.

use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};
use sanwire_io::Clock;

use crate::endpoint::{ConnectError, Endpoint};

/// The question is repeated this often, because it or its answers may get lost.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How long others of the same name have to answer, after the first one.
pub(super) const OTHERS_TIMEOUT: Duration = Duration::from_millis(250);

/// Answers that are looked at.
const ANSWERS_MAX: usize = 4096;

/// Packets taken from a port at once.
const RECEIVE_BUDGET: usize = 64;

/// Nobody waits longer.
const PATIENCE_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Asks until `patience` is over, or `settling` after the first answer. `answer` says what a packet tells, if it answers the question; of
/// each place one counts.
///
/// # Errors
/// [`ConnectError::Open`] when the ports cannot be waited for.
pub(super) fn ask<A>(
    endpoint: &mut Endpoint,
    question: &Packet,
    (patience, settling): (Duration, Duration),
    answer: impl Fn(Path, &[u8]) -> Option<A>,
) -> Result<Vec<(Path, A)>, ConnectError> {
    let Endpoint { ports, places, .. } = endpoint;
    let clock = Clock::new();
    let (mut end, mut ask_at) = (clock.now() + patience.min(PATIENCE_MAX), Instant::ZERO);
    let mut answers: Vec<(Path, A)> = Vec::new();
    while clock.now() < end {
        if ask_at <= clock.now() {
            ask_at = clock.now() + ASK_EVERY;
            places.iter().for_each(|place| ports.queue(*place, question.clone()));
            ports.flush();
        }
        let was_empty = answers.is_empty();
        let received = ports.receive(RECEIVE_BUDGET, &mut |path, bytes| {
            if let Some(answer) = answer(path, bytes)
                && answers.len() < ANSWERS_MAX
                && !answers.iter().any(|(known, _)| *known == path)
            {
                answers.push((path, answer));
            }
        });
        if was_empty && !answers.is_empty() {
            end = end.min(clock.now() + settling);
        }
        if received == 0 {
            let broken = |source| ConnectError::Open { what: "the links for discovery".into(), source, hint: "" };
            ports.wait(None, Some(end.min(ask_at)), &clock).map_err(broken)?;
        }
    }
    Ok(answers)
}

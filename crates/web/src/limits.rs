//! What clients of HTTP may hold, and how long they may take.

use std::time::Duration;

use sanwire_core::quota::{Holder, Quota};

/// Connections at a time by TCP.
pub(crate) const CONNECTIONS_MAX: usize = 512;

/// Those of one network.
pub(crate) const CONNECTIONS_OF_NETWORK_MAX: usize = 128;

/// Those by the unix socket: strangers take none of them.
pub(crate) const CONNECTIONS_OF_SOCKET_MAX: usize = 128;

/// Memory for bodies that come and answers that go by TCP.
pub(crate) const MEMORY_MAX_BYTES: usize = 128 << 20;

/// The same of one network, and of the unix socket.
pub(crate) const MEMORY_OF_NETWORK_MAX_BYTES: usize = 32 << 20;

/// Requests of an HTTP/2 connection at a time.
pub(crate) const STREAMS_MAX: u32 = 64;

/// Headers of a request.
pub(crate) const HEADERS_MAX_BYTES: usize = 16 << 10;

/// The body of a request: as long as a request of management may be.
pub(crate) const BODY_MAX_BYTES: usize = sanwire_server::REQUEST_MAX_BYTES;

/// The same of who has no account: a name and a password, with all of their bytes escaped.
pub(crate) const BODY_OF_STRANGER_MAX_BYTES: usize = 3 << 10;

/// So long a handshake of TLS may take.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// So long the headers of a request may take, also from the end of the one before.
pub(crate) const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);

/// So long its body may take.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection without a request for so long, or with an answer of which nothing is taken, is closed.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// So long it has then to end by itself.
pub(crate) const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long those at the other end may take. Tests give them less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// For the headers of a request.
    pub(crate) headers: Duration,
    /// For its body.
    pub(crate) body: Duration,
    /// Without a request, or without taking anything of an answer.
    pub(crate) silence: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times { headers: HEADERS_TIMEOUT, body: BODY_TIMEOUT, silence: SILENCE_TIMEOUT }
    }
}

/// Requests of those with accounts that are with the server's management at a time.
pub(crate) const MANAGED_MAX: usize = 12;

/// Those of who has none.
pub(crate) const MANAGED_OF_STRANGERS_MAX: usize = 2;

/// More that are kept for the unix socket.
pub(crate) const MANAGED_OF_SOCKET_MAX: usize = 2;

/// So long the others wait for their turn.
pub(crate) const MANAGED_WAIT: Duration = Duration::from_secs(20);

/// Handshakes of TLS that are computed at a time; networks take turns.
pub(crate) const HANDSHAKES_MAX: usize = 1;

/// Threads for what may take long: those requests, handshakes, and what guards accounts.
pub(crate) const THREADS_MAX: usize =
    MANAGED_MAX + MANAGED_OF_STRANGERS_MAX + MANAGED_OF_SOCKET_MAX + HASHED_MAX + HANDSHAKES_MAX + 2;

/// Listeners to events at a time.
pub(crate) const LISTENERS_MAX: usize = 64;

/// Those of one account; the unix socket may have them all.
pub(crate) const LISTENERS_OF_ACCOUNT_MAX: usize = 16;

/// Sessions of people at a time. The oldest one goes for a new one.
pub(crate) const SESSIONS_MAX: usize = 256;

/// Those of one user.
pub(crate) const SESSIONS_OF_USER_MAX: usize = 16;

/// Passwords that are stretched at a time, with 64 MiB each; where there are few processors, fewer.
pub(crate) const HASHED_MAX: usize = 2;

/// Those that wait besides.
pub(crate) const HASHED_WAITING_MAX: usize = 16;

/// Log-ins from one network: a person who has mistyped a password takes some of that.
pub(crate) const LOGINS_OF_NETWORK: Quota = Quota::per_minute(Holder::Network, "log-ins", 6, 6);

/// Those as one user, from all networks: so many that one network alone does not keep the user out.
pub(crate) const LOGINS_OF_ACCOUNT: Quota = Quota::per_minute(Holder::Client, "log-ins", 12, 24);

/// First log-ins from one network. Nobody guesses a code, so there is no such limit for all networks together.
pub(crate) const CODES_OF_NETWORK: Quota = Quota::per_minute(Holder::Network, "first log-ins", 6, 6);

/// Changes of the own password.
pub(crate) const PASSWORDS_OF_USER: Quota = Quota::per_minute(Holder::Client, "changes of the own password", 6, 6);

/// Tokens that do not hold, from one network, which are written down.
pub(crate) const NOTED_TOKENS: Quota =
    Quota::per_minute(Holder::Network, "tokens that do not hold, in the audit log", 6, 6);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_in_the_documents_are_those_of_the_program() {
        let rows = [
            ("server", "connections by TCP", CONNECTIONS_MAX.to_string()),
            ("network", "connections", CONNECTIONS_OF_NETWORK_MAX.to_string()),
            ("unix socket", "connections", CONNECTIONS_OF_SOCKET_MAX.to_string()),
            ("server", "memory for bodies and answers by TCP", format!("{} MiB", MEMORY_MAX_BYTES >> 20)),
            ("network", "the same; also the unix socket", format!("{} MiB", MEMORY_OF_NETWORK_MAX_BYTES >> 20)),
            ("connection", "requests at a time (HTTP/2)", STREAMS_MAX.to_string()),
            ("request", "headers", format!("{} KiB", HEADERS_MAX_BYTES >> 10)),
            ("request", "body", format!("{} KiB", BODY_MAX_BYTES >> 10)),
            ("request", "body without an account", format!("{} KiB", BODY_OF_STRANGER_MAX_BYTES >> 10)),
            ("connection", "time for its TLS handshake", format!("{} s", HANDSHAKE_TIMEOUT.as_secs())),
            ("server", "TLS handshakes that are computed, networks in turn", HANDSHAKES_MAX.to_string()),
            ("request", "time for its headers", format!("{} s", HEADERS_TIMEOUT.as_secs())),
            ("request", "time for its body", format!("{} s", BODY_TIMEOUT.as_secs())),
            ("connection", "time without a request", format!("{} s", SILENCE_TIMEOUT.as_secs())),
            ("answer", "time without progress", format!("{} s", SILENCE_TIMEOUT.as_secs())),
            ("server", "requests that are being done", MANAGED_MAX.to_string()),
            ("server", "those of who has no account", MANAGED_OF_STRANGERS_MAX.to_string()),
            ("unix socket", "more of them", MANAGED_OF_SOCKET_MAX.to_string()),
            ("request", "time until it is its turn", format!("{} s", MANAGED_WAIT.as_secs())),
            ("server", "listeners to events", LISTENERS_MAX.to_string()),
            ("account", "listeners to events", LISTENERS_OF_ACCOUNT_MAX.to_string()),
            ("server", "sessions of users", SESSIONS_MAX.to_string()),
            ("user", "sessions", SESSIONS_OF_USER_MAX.to_string()),
            ("server", "passwords that are stretched, or wait for it", (HASHED_MAX + HASHED_WAITING_MAX).to_string()),
            ("network", "log-ins", LOGINS_OF_NETWORK.to_string()),
            ("user", "log-ins", LOGINS_OF_ACCOUNT.to_string()),
            ("network", "first log-ins", CODES_OF_NETWORK.to_string()),
            ("user", "changes of the own password", PASSWORDS_OF_USER.to_string()),
            ("network", "tokens that do not hold, in the audit log", NOTED_TOKENS.to_string()),
        ];
        let known: Vec<String> = rows.iter().map(|(who, what, limit)| format!("{who} | {what} | {limit}")).collect();
        let page = include_str!("../../../docs/security.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Limits of the HTTP API\n")).unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
        let cut = |row: &str| row.split('|').skip(1).take(3).map(str::trim).collect::<Vec<_>>().join(" | ");
        assert_eq!(rows.map(cut).collect::<Vec<_>>(), known);
    }
}

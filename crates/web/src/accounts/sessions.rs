//! Sessions of people who have logged in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Digest;
use crate::limits::{SESSIONS_MAX, SESSIONS_OF_USER_MAX};

/// So long a session lasts.
pub(crate) const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);

#[derive(Default)]
pub(super) struct Sessions(BTreeMap<Digest, Session>);

struct Session {
    user: String,
    begun: Instant,
}

impl Sessions {
    pub(super) fn begin(&mut self, digest: Digest, user: &str, now: Instant) {
        self.0.retain(|_, session| !session.is_over(now));
        self.make_room(SESSIONS_OF_USER_MAX, |session| session.user == user);
        self.make_room(SESSIONS_MAX, |_| true);
        self.0.insert(digest, Session { user: user.to_owned(), begun: now });
    }

    /// Of those, the oldest goes if there are as many as may be.
    fn make_room(&mut self, max: usize, is_one: impl Fn(&Session) -> bool) {
        let those = || self.0.iter().filter(|(_, session)| is_one(session));
        if those().count() < max {
            return;
        }
        let oldest = those().min_by_key(|(_, session)| session.begun).map(|(digest, _)| *digest);
        oldest.map(|digest| self.0.remove(&digest));
    }

    /// Whose it is.
    pub(super) fn find(&mut self, digest: &Digest, now: Instant) -> Option<String> {
        self.0.get(digest).filter(|session| !session.is_over(now)).map(|session| session.user.clone())
    }

    pub(super) fn end(&mut self, digest: &Digest) {
        self.0.remove(digest);
    }

    pub(super) fn end_of(&mut self, user: &str) {
        self.0.retain(|_, session| session.user != user);
    }
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= SESSION_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::of(&number.to_string())
    }

    #[test]
    fn a_session_ends_by_itself_and_with_its_user() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        sessions.begin(digest(1), "a", now);
        sessions.begin(digest(2), "b", now);
        let late = now + SESSION_TIME;
        assert_eq!(sessions.find(&digest(1), late - Duration::from_secs(1)), Some("a".into()));
        assert_eq!(sessions.find(&digest(1), late), None);
        sessions.end_of("a");
        assert_eq!((sessions.find(&digest(1), now), sessions.find(&digest(2), now)), (None, Some("b".into())));
    }

    #[test]
    fn the_oldest_session_goes_when_there_are_too_many() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        for number in 0..SESSIONS_MAX {
            sessions.begin(digest(number), &format!("user{}", number % 20), now + Duration::from_secs(number as u64));
        }
        (0..SESSIONS_OF_USER_MAX + 1)
            .for_each(|number| sessions.begin(digest(1000 + number), "a", now + Duration::from_secs(9999)));
        assert_eq!(sessions.0.len(), SESSIONS_MAX);
        assert_eq!(sessions.find(&digest(0), now), None);
        let of_a = (0..SESSIONS_OF_USER_MAX + 1).filter(|number| sessions.find(&digest(1000 + number), now).is_some());
        assert_eq!(of_a.count(), SESSIONS_OF_USER_MAX);
    }
}

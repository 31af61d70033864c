//! Cookies: a peer that wants to begin a handshake proves with one that it receives what is sent to its address; the server keeps no
//! state for that.
//!
//! A cookie is a hash of who asks, from where, and for which attempt, under a secret that only this shard knows and replaces every
//! few seconds. It costs a stranger a round trip and the server one short hash for each request.

use std::hash::Hasher;
use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use sanwire_core::{ClientId, Instant, Path, Peer};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::keys::Randomness;

/// By what a peer shows that it receives what is sent to its address.
pub type Cookie = [u8; 16];

/// How long a secret makes cookies; they are good for as long again.
const MAKES_FOR: Duration = Duration::from_secs(10);

/// Makes and checks cookies.
#[derive(Default)]
pub struct Cookies {
    current: Option<Secret>,
    former: Option<Secret>,
}

struct Secret {
    key: [u8; 16],
    since: Instant,
}

/// Who asks for what.
#[derive(Clone, Copy)]
pub struct Asker {
    /// Where the request came from.
    pub path: Path,
    /// As whom.
    pub client: ClientId,
    /// The attempt that it belongs to.
    pub attempt: u64,
}

impl Cookies {
    /// The cookie of this attempt.
    pub fn make(&mut self, asker: Asker, random: &mut Randomness, now: Instant) -> Cookie {
        self.renew(now);
        let secret = self.current.get_or_insert_with(|| Secret { key: random.key(), since: now });
        secret.cookie(asker)
    }

    /// Whether we made this cookie for this attempt lately.
    pub fn is_ours(&mut self, cookie: &Cookie, asker: Asker, now: Instant) -> bool {
        self.renew(now);
        let mut secrets = self.current.iter().chain(&self.former);
        secrets.any(|secret| verify_slices_are_equal(&secret.cookie(asker), cookie).is_ok())
    }

    fn renew(&mut self, now: Instant) {
        let age = |secret: &Secret| now.saturating_since(secret.since);
        if let Some(worn) = self.current.take_if(|secret| age(secret) >= MAKES_FOR) {
            self.former = Some(worn);
        }
        self.former.take_if(|secret| age(secret) >= MAKES_FOR * 2);
    }
}

impl Secret {
    fn cookie(&self, Asker { path, client, attempt }: Asker) -> Cookie {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        // Bytes of one kind of address must not read as another's.
        match path.peer {
            Peer::Ethernet(mac) => {
                hasher.write(&[path.link.0, 0]);
                hasher.write(&mac.0);
            }
            Peer::Udp(address) => {
                match address.ip() {
                    IpAddr::V4(ip) => {
                        hasher.write(&[path.link.0, 4]);
                        hasher.write(&ip.octets());
                    }
                    IpAddr::V6(ip) => {
                        hasher.write(&[path.link.0, 6]);
                        hasher.write(&ip.octets());
                    }
                }
                hasher.write(&address.port().to_be_bytes());
            }
        }
        hasher.write(&client.0);
        hasher.write(&attempt.to_be_bytes());
        hasher.finish128().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::{LinkId, MacAddress};

    use super::*;

    fn asker() -> Asker {
        let path = Path { link: LinkId(1), peer: Peer::Udp(([10, 0, 0, 1], 5).into()) };
        Asker { path, client: ClientId([1; 16]), attempt: 7 }
    }

    #[test]
    fn a_cookie_is_good_for_its_attempt_address_and_client_only() {
        let (mut cookies, mut random) = (Cookies::default(), Randomness::new([1; 32]));
        let mine = asker();
        let cookie = cookies.make(mine, &mut random, Instant::ZERO);
        assert!(cookies.is_ours(&cookie, mine, Instant::ZERO));
        let at = |link, peer| Asker { path: Path { link: LinkId(link), peer }, ..mine };
        for other in [
            Asker { attempt: 8, ..mine },
            Asker { client: ClientId([2; 16]), ..mine },
            at(2, mine.path.peer),
            at(1, Peer::Udp(([10, 0, 0, 1], 6).into())),
            at(1, Peer::Udp(([10, 0, 0, 2], 5).into())),
            at(1, Peer::Ethernet(MacAddress([10, 0, 0, 1, 0, 5]))),
        ] {
            assert!(!cookies.is_ours(&cookie, other, Instant::ZERO));
        }
        assert!(!cookies.is_ours(&[0; 16], mine, Instant::ZERO));
        let (mut restarted, mut random) = (Cookies::default(), Randomness::new([2; 32]));
        restarted.make(mine, &mut random, Instant::ZERO);
        assert!(!restarted.is_ours(&cookie, mine, Instant::ZERO), "another secret");
    }

    #[test]
    fn a_cookie_outlives_the_next_secret_and_not_the_one_after() {
        let (mut cookies, mut random) = (Cookies::default(), Randomness::new([1; 32]));
        let begun = Instant::ZERO + Duration::from_secs(100);
        let first = cookies.make(asker(), &mut random, begun);
        let last = begun + (MAKES_FOR - Duration::from_millis(1));
        assert_eq!(cookies.make(asker(), &mut random, last), first);
        let second = cookies.make(asker(), &mut random, begun + MAKES_FOR);
        assert_ne!(second, first);
        let late = begun + (MAKES_FOR * 2 - Duration::from_millis(1));
        assert!(cookies.is_ours(&first, asker(), late) && cookies.is_ours(&second, asker(), late));
        assert!(!cookies.is_ours(&first, asker(), begun + MAKES_FOR * 2));
        assert!(!cookies.is_ours(&second, asker(), begun + MAKES_FOR * 4), "also when nobody has asked meanwhile");
    }
}

//! The security stage as an initiator sees it: it shows who it is, and has the target show who that is (RFC 7143 12.1).

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

use super::client::{ClientRefusal, violation};
use super::status::LoginStatus;
use crate::chap::{Challenge, ChapAlgorithm, Credential};
use crate::client::Failure;
use crate::text::TextWriter;

const WHO_ARE_WE: &str = "the target asks who we are: give a user and a secret";

/// The keys of the security stage that one text has.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SecurityKeys<'a> {
    pub(super) method: Option<&'a str>,
    pub(super) algorithms: Option<&'a str>,
    pub(super) identifier: Option<&'a str>,
    pub(super) challenge: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) response: Option<&'a str>,
}

impl<'a> SecurityKeys<'a> {
    /// Takes a pair if it belongs here; `None` if it came before.
    pub(super) fn take(&mut self, key: &str, value: &'a str) -> Option<bool> {
        let place = match key {
            "AuthMethod" => &mut self.method,
            "CHAP_A" => &mut self.algorithms,
            "CHAP_I" => &mut self.identifier,
            "CHAP_C" => &mut self.challenge,
            "CHAP_N" => &mut self.name,
            "CHAP_R" => &mut self.response,
            _ => return Some(false),
        };
        place.replace(value).is_none().then_some(true)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        let Self { method, algorithms, identifier, challenge, name, response } = self;
        [method, algorithms, identifier, challenge, name, response].into_iter().all(|value| value.is_none())
    }
}

enum State {
    /// The methods are offered.
    Offered,
    /// The algorithms are offered.
    Listed,
    /// The target's challenge is answered; this one is ours, if it has to show who it is.
    Responded { algorithm: ChapAlgorithm, own: Option<Challenge> },
    /// Nothing is left to be shown.
    Done,
}

/// The initiator's part in the security stage.
pub(super) struct ClientSecurity {
    credential: Option<Credential>,
    target_credential: Option<Credential>,
    md5_only: bool,
    random: ChaCha20Rng,
    state: State,
}

impl ClientSecurity {
    pub(super) fn new(
        credential: Option<Credential>,
        target_credential: Option<Credential>,
        md5_only: bool,
        seed: [u8; 32],
    ) -> Self {
        let random = ChaCha20Rng::from_seed(seed);
        ClientSecurity { credential, target_credential, md5_only, random, state: State::Offered }
    }

    /// What AuthMethod offers.
    pub(super) fn methods(&self) -> &'static str {
        match (&self.credential, &self.target_credential) {
            (None, _) => "None",
            (Some(_), None) => "CHAP,None",
            (Some(_), Some(_)) => "CHAP",
        }
    }

    /// Whether we are ready for the next stage, as far as we know.
    pub(super) fn is_ready(&self) -> bool {
        !matches!(self.state, State::Listed)
    }

    /// Takes what the target said.
    pub(super) fn handle(&mut self, keys: &SecurityKeys<'_>, text: &mut TextWriter) -> Result<(), ClientRefusal> {
        match &self.state {
            State::Offered if keys.method.is_some() => self.take_method(keys, text),
            State::Listed => self.respond(keys, text),
            State::Responded { own, .. } => {
                if let (Some(own), Some(credential)) = (own, &self.target_credential) {
                    verify(own, credential, keys)?;
                }
                self.state = State::Done;
                Ok(())
            }
            State::Offered | State::Done if keys.is_empty() => Ok(()),
            State::Offered | State::Done => Err(violation("it spoke of security out of turn")),
        }
    }

    /// The target goes on to the next stage: it must have shown what it has to.
    pub(super) fn pass(&self) -> Result<(), ClientRefusal> {
        match self.state {
            State::Done => Ok(()),
            // A target that does not mention the method takes us as we are.
            State::Offered if self.target_credential.is_none() => Ok(()),
            State::Offered => Err(not_authentic("the target did not show who it is")),
            State::Listed | State::Responded { .. } => Err(violation("it ended the security stage too early")),
        }
    }

    /// What it means that the target refused us just now: older targets do not take a list of algorithms, or know
    /// another algorithm by the number that we answered to.
    pub(super) fn wants_md5(&self, status: LoginStatus) -> bool {
        let is_doubtful = match self.state {
            State::Listed => true,
            // Some say that they did not like the response: it is longer than that of the algorithm they mean.
            State::Responded { algorithm, .. } => algorithm != ChapAlgorithm::Md5,
            State::Offered | State::Done => false,
        };
        is_doubtful && status.to_wire()[0] == 2 && !self.md5_only
    }

    /// Why the target refused us with this status, as far as we know more than that.
    pub(super) fn explain(&self, status: LoginStatus) -> Option<ClientRefusal> {
        let is_anonymous = status == LoginStatus::AuthenticationFailure && self.credential.is_none();
        is_anonymous.then(|| not_authentic(WHO_ARE_WE))
    }

    fn take_method(&mut self, keys: &SecurityKeys<'_>, text: &mut TextWriter) -> Result<(), ClientRefusal> {
        match (keys.method, &self.credential) {
            (Some("None"), _) if self.target_credential.is_none() => self.state = State::Done,
            (Some("CHAP"), Some(_)) => {
                let number = ChapAlgorithm::Md5 as u8;
                text.push(
                    "CHAP_A",
                    if self.md5_only { number.to_string() } else { ChapAlgorithm::OFFER.into() }.as_str(),
                );
                self.state = State::Listed;
            }
            (Some("None"), _) => return Err(not_authentic("the target will not show who it is")),
            (_, None) => return Err(not_authentic(WHO_ARE_WE)),
            (_, Some(_)) => return Err(not_authentic("the target does not take CHAP")),
        }
        Ok(())
    }

    fn respond(&mut self, keys: &SecurityKeys<'_>, text: &mut TextWriter) -> Result<(), ClientRefusal> {
        let Some(credential) = &self.credential else { return Ok(()) };
        let algorithm = match keys.algorithms {
            Some("Reject") if self.md5_only => return Err(not_authentic("the target takes none of our algorithms")),
            Some("Reject") => return Err(ClientRefusal::Md5Only),
            chosen => chosen.and_then(ChapAlgorithm::from_number),
        };
        let algorithm = algorithm.filter(|algorithm| !self.md5_only || *algorithm == ChapAlgorithm::Md5);
        let algorithm = algorithm.ok_or_else(|| violation("it chose no algorithm of ours"))?;
        let challenge = keys.identifier.zip(keys.challenge);
        let challenge = challenge.and_then(|(identifier, bytes)| Challenge::read(algorithm, identifier, bytes));
        let challenge = challenge.ok_or_else(|| violation("its challenge is none"))?;
        let own = match &self.target_credential {
            // RFC 7143 12.1.3: with one secret for both directions, a false target could have us answer our own
            // challenge on another connection.
            Some(target) if target.secret == credential.secret => {
                return Err(not_authentic("user and target have the same secret: give each one of its own"));
            }
            Some(_) => Some(Challenge::fresh(algorithm, &mut self.random)),
            None => None,
        };
        text.push("CHAP_N", &credential.name);
        text.push("CHAP_R", &challenge.response(&credential.secret));
        if let Some(own) = &own {
            own.write(text);
        }
        self.state = State::Responded { algorithm, own };
        Ok(())
    }
}

/// Whether the target has shown who it is.
fn verify(own: &Challenge, credential: &Credential, keys: &SecurityKeys<'_>) -> Result<(), ClientRefusal> {
    let (Some(name), Some(response)) = (keys.name, keys.response) else {
        return Err(not_authentic("the target did not show who it is"));
    };
    if name == credential.name && own.is_met(response, &credential.secret) {
        Ok(())
    } else {
        Err(not_authentic("the target is not who it should be, or has another secret"))
    }
}

fn not_authentic(reason: &str) -> ClientRefusal {
    ClientRefusal::Refused(Failure::NotAuthentic { reason: reason.to_owned() })
}

//! The security stage as a target sees it: who is that (RFC 7143 6.3.2 and 12.1)?

use rand_chacha::ChaCha20Rng;

use super::Authentication;
use super::client_security::SecurityKeys;
use super::exchange::Refusal;
use super::status::LoginStatus;
use crate::chap::{Challenge, ChapAlgorithm, Credential};
use crate::text::TextWriter;

enum State {
    /// Nothing was said.
    Open,
    /// CHAP it is.
    Chosen,
    /// This waits for its response.
    Challenged(Challenge),
    /// It is over.
    Done { user: Option<String> },
}

/// The target's part in the security stage.
pub(super) struct Security {
    authentication: Authentication,
    random: ChaCha20Rng,
    state: State,
}

impl Security {
    pub(super) fn new(authentication: Authentication, random: ChaCha20Rng) -> Self {
        Security { authentication, random, state: State::Open }
    }

    /// Takes what the initiator said.
    pub(super) fn handle(&mut self, keys: &SecurityKeys<'_>, text: &mut TextWriter) -> Result<(), Refusal> {
        if keys.is_empty() {
            return Ok(());
        }
        match (&self.state, keys) {
            (State::Open, SecurityKeys { method: Some(methods), .. }) => self.choose_method(methods, text),
            (State::Chosen, SecurityKeys { method: None, algorithms: Some(list), .. }) => self.challenge(list, text),
            (State::Challenged(challenge), SecurityKeys { method: None, algorithms: None, .. }) => {
                let user = self.verify(challenge, keys)?;
                self.prove(challenge, user, keys, text)?;
                let user = user.map(|user| user.name.clone());
                self.state = State::Done { user };
                Ok(())
            }
            _ => Err(Refusal::new(LoginStatus::InitiatorError, "it spoke of security out of turn")),
        }
    }

    /// Whom the initiator showed to be. An error if it wants to go on without having shown it where it must; `None`
    /// while its part is not done.
    pub(super) fn pass(&self) -> Result<Option<Option<&str>>, Refusal> {
        match &self.state {
            State::Done { user } => Ok(Some(user.as_deref())),
            State::Open if self.authentication.users.is_empty() => Ok(Some(None)),
            State::Open => Err(unknown("it did not show who it is")),
            State::Chosen | State::Challenged(_) => Ok(None),
        }
    }

    /// RFC 7143 13.1: the first method of the list that we can use with this initiator. One that insists on CHAP where
    /// no authentication is required gets it, and any response is right: there is no user whose it could be.
    fn choose_method(&mut self, methods: &str, text: &mut TextWriter) -> Result<(), Refusal> {
        let Authentication { users, mutual, .. } = &self.authentication;
        let offers = |method: &str| methods.split(',').any(|offered| offered == method);
        let is_first = methods.split(',').find(|method| ["CHAP", "None"].contains(method)) == Some("CHAP");
        let wants_chap = !users.is_empty() || !offers("None") || mutual.is_some() && is_first;
        match (wants_chap, offers("CHAP")) {
            (true, true) => {
                text.push("AuthMethod", "CHAP");
                self.state = State::Chosen;
            }
            (true, false) => return Err(unknown("it does not offer CHAP, by which it must show who it is")),
            (false, _) => {
                text.push("AuthMethod", "None");
                self.state = State::Done { user: None };
            }
        }
        Ok(())
    }

    fn challenge(&mut self, list: &str, text: &mut TextWriter) -> Result<(), Refusal> {
        let algorithm = ChapAlgorithm::first_of(list, &self.authentication.algorithms);
        let algorithm = algorithm.ok_or_else(|| unknown("it offers no CHAP algorithm that is allowed here"))?;
        let challenge = Challenge::fresh(algorithm, &mut self.random);
        text.push("CHAP_A", &(algorithm as u8).to_string());
        challenge.write(text);
        self.state = State::Challenged(challenge);
        Ok(())
    }

    /// Finds the user who can answer the challenge; none where there are none.
    fn verify(&self, challenge: &Challenge, keys: &SecurityKeys<'_>) -> Result<Option<&Credential>, Refusal> {
        let (Some(name), Some(response)) = (keys.name, keys.response) else {
            return Err(Refusal::new(LoginStatus::MissingParameter, "its answer to the challenge is not complete"));
        };
        if self.authentication.users.is_empty() {
            return Ok(None);
        }
        let user = self.authentication.users.iter().find(|user| user.name == name);
        let user = user.filter(|user| challenge.is_met(response, &user.secret));
        user.map(Some).ok_or_else(|| unknown(&format!("it is not the user '{name}', or has another secret")))
    }

    /// Authenticates this target, if that was asked for: only to an initiator that has authenticated itself.
    fn prove(
        &self,
        own: &Challenge,
        user: Option<&Credential>,
        keys: &SecurityKeys<'_>,
        text: &mut TextWriter,
    ) -> Result<(), Refusal> {
        let (identifier, bytes) = match (keys.identifier, keys.challenge) {
            (None, None) => return Ok(()),
            (Some(identifier), Some(bytes)) => (identifier, bytes),
            _ => return Err(Refusal::new(LoginStatus::MissingParameter, "its challenge is not complete")),
        };
        let Some(mutual) = &self.authentication.mutual else {
            return Err(unknown("it wants to know who the target is, which has no name and secret for that"));
        };
        let theirs = Challenge::read(own.algorithm, identifier, bytes);
        let theirs = theirs.ok_or_else(|| unknown("its challenge is none"))?;
        // RFC 7143 12.1.3: neither our own challenge on the way back, nor one secret for both directions, with which a
        // challenge of another connection could be answered.
        if theirs.bytes == own.bytes {
            return Err(unknown("it gave us our own challenge back"));
        }
        if user.is_some_and(|user| user.secret == mutual.secret) {
            let reason = "user and target have the same secret: give each one of its own";
            return Err(Refusal::new(LoginStatus::TargetError, reason));
        }
        text.push("CHAP_N", &mutual.name);
        text.push("CHAP_R", &theirs.response(&mutual.secret));
        Ok(())
    }
}

fn unknown(reason: &str) -> Refusal {
    Refusal::new(LoginStatus::AuthenticationFailure, reason)
}

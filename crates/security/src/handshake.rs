//! The handshake: Noise_XX_25519_AESGCM_SHA256, in whose payloads CPace runs with the password's secret. The keys that both come to
//! are the first secrets of the connection's key ring.
//!
//! Anybody on the way can send a message that does not verify, and it must not end the handshake: the true one may still come. So
//! each message is tried on a copy. One that verifies was made by the owner of the handshake's keys and of the static key: only then
//! is it known whether that peer has the password too. It has tried one password; listeners and forgers have tried none.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use sanwire_core::ClientId;
use zeroize::Zeroizing;

use crate::TAG_BYTES;
use crate::cpace::{Party, Share, SharedKey};
use crate::keys::{Identity, KeyError, Psk, Randomness, client_id, exchange, public};
use crate::noise::{self, Symmetric, extract};
use crate::ring::{KeyRing, Secret};

/// The longest Noise message that either end takes, in bytes.
pub const NOISE_MAX_BYTES: usize = 512;

const KEY_BYTES: usize = 32;

/// A static key in a message, with its tag.
const SEALED_KEY_BYTES: usize = KEY_BYTES + TAG_BYTES;

/// What the mark of a second step is made with, beside what both ends come to.
const MARK: &[u8] = b"sanwire second step";

/// By what a server shows that it is itself which refuses a third step.
pub type Proof = [u8; 16];

/// By what a server shows who knows its key that a second step is its own, and of this connection.
pub type Mark = [u8; 16];

/// Second step of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecondStep<'a> {
    /// The connection that will be.
    pub connection: u32,
    /// Noise message 2; its payload is a share of CPace and what the server says.
    pub noise: &'a [u8],
    /// Covers the others.
    pub mark: Mark,
}

/// By what a server proves, and its client sees, that a third step is refused by who has made the second one: the key of nobody else,
/// and of no other handshake.
pub struct RefusalKey(hmac::Key);

impl RefusalKey {
    fn new(state: &Symmetric) -> Self {
        let [secret, _] = state.split();
        RefusalKey(hmac::Key::new(HMAC_SHA256, &*secret))
    }

    /// The proof that this third step is refused, for the reason with this number.
    pub fn prove(&self, refusal: u8, third: &[u8]) -> Proof {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&[refusal]);
        context.update(third);
        first_half(context.sign().as_ref())
    }

    /// Whether it is that.
    pub fn is_proven(&self, refusal: u8, third: &[u8], proof: &Proof) -> bool {
        verify_slices_are_equal(&self.prove(refusal, third), proof).is_ok()
    }
}

/// By what a client sees that a second step is of a server whose key it knows, before it reads it: who does not know that key can
/// neither make one nor test one.
pub struct MarkKey(Secret);

impl MarkKey {
    fn new(shared: &Secret) -> Self {
        MarkKey(extract(MARK, &**shared))
    }

    fn mark(&self, connection: u32, noise: &[u8]) -> Mark {
        first_half(&*extract(&*self.0, &[&connection.to_be_bytes(), noise].concat()))
    }

    /// Whether the server has made this second step.
    pub fn has_marked(&self, SecondStep { connection, noise, mark }: SecondStep<'_>) -> bool {
        verify_slices_are_equal(&self.mark(connection, noise), &mark).is_ok()
    }
}

fn first_half(whole: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&whole[..16]);
    half
}

/// What both ends come to, for either direction.
#[derive(Clone)]
pub struct Secrets {
    /// Of what the client sends.
    pub from_client: Secret,
    /// Of what the server sends.
    pub from_server: Secret,
}

impl Secrets {
    fn new(state: &Symmetric, shared: &SharedKey) -> Self {
        let [from_client, from_server] = state.split().map(|secret| extract(&*secret, &**shared));
        Secrets { from_client, from_server }
    }

    /// The client's keys.
    pub fn of_client(self) -> Result<KeyRing, KeyError> {
        KeyRing::new(self.from_client, self.from_server)
    }

    /// The server's keys.
    pub fn of_server(self) -> Result<KeyRing, KeyError> {
        KeyRing::new(self.from_server, self.from_client)
    }
}

/// The key of what only the other end with the same password can read.
fn inner_key(session: &[u8; 32], shared: &SharedKey) -> Secret {
    extract(session, &**shared)
}

/// The client's end. It can read any number of second steps.
pub struct Initiator {
    ephemeral: Secret,
    state: Symmetric,
}

impl Initiator {
    /// Also gives the first step.
    ///
    /// # Errors
    /// [`KeyError`] when the library refuses a key.
    pub fn new(prologue: &[u8], random: &mut Randomness) -> Result<(Self, Vec<u8>), KeyError> {
        let ephemeral = Zeroizing::new(random.bytes());
        let first = public(&ephemeral)?;
        let mut state = Symmetric::new(prologue);
        state.mix_hash(&first);
        state.seal(&[])?;
        Ok((Initiator { ephemeral, state }, first.to_vec()))
    }

    /// By what second steps of the server with this key are known.
    pub fn mark_key(&self, server: &[u8; 32]) -> Result<MarkKey, KeyError> {
        exchange(&self.ephemeral, server).map(|shared| MarkKey::new(&shared))
    }

    /// Reads a second step. Its sender has the private half of the static key; whether it has the password, the connection will show.
    ///
    /// # Errors
    /// [`KeyError`] for what does not verify.
    pub fn read(&self, second: SecondStep<'_>) -> Result<Met, KeyError> {
        let (ephemeral, rest) = take_key(second.noise)?;
        let (sealed, payload) = rest.split_at_checked(SEALED_KEY_BYTES).ok_or(KeyError)?;
        let mut state = self.state.clone();
        state.mix_hash(&ephemeral);
        state.mix_key(&*exchange(&self.ephemeral, &ephemeral)?);
        let (server, _) = take_key(&state.open(sealed)?)?;
        let shared = exchange(&self.ephemeral, &server)?;
        if !MarkKey::new(&shared).has_marked(second) {
            return Err(KeyError);
        }
        state.mix_key(&*shared);
        let session = state.hash();
        let payload = state.open(payload)?;
        let (share, payload) = take_key(&payload)?;
        Ok(Met { server, payload: payload.to_vec(), state, ephemeral, session, share })
    }
}

/// A server, after its second step.
pub struct Met {
    /// Its static public key.
    pub server: [u8; 32],
    /// What it says.
    pub payload: Vec<u8>,
    state: Symmetric,
    ephemeral: [u8; 32],
    session: [u8; 32],
    share: Share,
}

impl Met {
    /// By what it refuses a third step.
    pub fn refusal_key(&self) -> RefusalKey {
        RefusalKey::new(&self.state)
    }

    /// The third step, in which this can be read by who has the same password only, and the secrets of the connection.
    ///
    /// # Errors
    /// [`KeyError`] when the server's key or share is none.
    pub fn answer(
        mut self,
        (identity, psk): (&Identity, &Psk),
        payload: &[u8],
        random: &mut Randomness,
    ) -> Result<(Vec<u8>, Secrets), KeyError> {
        let party = Party::new(psk, self.session, random);
        let shared = party.key_of_second(&self.share)?;
        let mut inner = payload.to_vec();
        noise::seal(&inner_key(&self.session, &shared), 0, &[], &mut inner)?;
        let mut third = self.state.seal(identity.public())?;
        self.state.mix_key(&*exchange(identity.private(), &self.ephemeral)?);
        third.extend(self.state.seal(&[party.share(), &inner[..]].concat())?);
        Ok((third, Secrets::new(&self.state, &shared)))
    }
}

/// Why a third step leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misread {
    /// Anybody can have sent it.
    Garbage,
    /// The peer that began the handshake has another password, or is not the client that it claims to be.
    Guess {
        /// The client whose key the peer has shown, and has.
        by: ClientId,
    },
}

/// The server's end, from the second step on.
pub struct Responder {
    ephemeral: Secret,
    first: [u8; 32],
    state: Symmetric,
    session: [u8; 32],
    party: Party,
    shown: Option<Shown>,
    has_guessed: bool,
}

/// The static key of who has begun a handshake.
struct Shown {
    sealed: [u8; SEALED_KEY_BYTES],
    /// As it is, if it is one, and the state with it.
    key: Option<([u8; KEY_BYTES], Symmetric)>,
}

impl Responder {
    /// Reads a first step; also gives the second one, of this connection and with this payload, and its mark.
    ///
    /// # Errors
    /// [`KeyError`] when the first step holds no key.
    pub fn new(
        (identity, psk): (&Identity, &Psk),
        prologue: &[u8],
        first: &[u8],
        (connection, payload): (u32, &[u8]),
        random: &mut Randomness,
    ) -> Result<(Self, Vec<u8>, Mark), KeyError> {
        let (first, _) = take_key(first)?;
        let mut state = Symmetric::new(prologue);
        state.mix_hash(&first);
        state.open(&[])?;
        let ephemeral = Zeroizing::new(random.bytes());
        let mut second = public(&ephemeral)?.to_vec();
        state.mix_hash(&second);
        state.mix_key(&*exchange(&ephemeral, &first)?);
        second.extend(state.seal(identity.public())?);
        let shared = exchange(identity.private(), &first)?;
        state.mix_key(&*shared);
        let session = state.hash();
        let party = Party::new(psk, session, random);
        second.extend(state.seal(&[party.share(), payload].concat())?);
        let mark = MarkKey::new(&shared).mark(connection, &second);
        Ok((Responder { ephemeral, first, state, session, party, shown: None, has_guessed: false }, second, mark))
    }

    /// The first step that it answers.
    pub fn first(&self) -> &[u8; 32] {
        &self.first
    }

    /// By what a third step is refused.
    pub fn refusal_key(&self) -> RefusalKey {
        RefusalKey::new(&self.state)
    }

    /// Reads a third step of this client: its payload, and the secrets of the connection. What is no more than garbage costs next to
    /// nothing, and another one can be read; a peer with a wrong password has used up its guess, and nothing more of it is read.
    ///
    /// # Errors
    /// [`Misread`] when it leads nowhere.
    pub fn read(&mut self, client: ClientId, message: &[u8]) -> Result<(Vec<u8>, Secrets), Misread> {
        if message.len() > NOISE_MAX_BYTES || self.has_guessed {
            return Err(Misread::Garbage);
        }
        let (sealed, payload) = message.split_first_chunk().ok_or(Misread::Garbage)?;
        let (shown, mut state) = self.show(sealed).map_err(|_| Misread::Garbage)?;
        let payload = state.open(payload).map_err(|_| Misread::Garbage)?;
        let by = client_id(&shown);
        let unlocked = if by == client { self.unlock(&payload, &state).ok() } else { None };
        self.has_guessed = unlocked.is_none();
        unlocked.ok_or(Misread::Guess { by })
    }

    /// The static key in a third step. Only the peer that began the handshake can seal one, and it has no other: the first one counts, so
    /// that we compute once, whatever else that peer sends.
    fn show(&mut self, sealed: &[u8; SEALED_KEY_BYTES]) -> Result<([u8; 32], Symmetric), KeyError> {
        if self.shown.is_none() {
            let mut state = self.state.clone();
            let (key, _) = take_key(&state.open(sealed)?)?;
            let shared = exchange(&self.ephemeral, &key).ok();
            let key = shared.map(|shared| {
                state.mix_key(&*shared);
                (key, state)
            });
            self.shown = Some(Shown { sealed: *sealed, key });
        }
        let shown = self.shown.as_ref().filter(|shown| shown.sealed == *sealed).ok_or(KeyError)?;
        shown.key.clone().ok_or(KeyError)
    }

    /// What only who has the password can have written.
    fn unlock(&self, payload: &[u8], state: &Symmetric) -> Result<(Vec<u8>, Secrets), KeyError> {
        let (share, inner) = take_key(payload)?;
        let shared = self.party.key_of_first(&share)?;
        let mut plain = inner.to_vec();
        noise::open(&inner_key(&self.session, &shared), 0, &[], &mut plain)?;
        Ok((plain, Secrets::new(state, &shared)))
    }
}

/// The key at the beginning, and what follows.
fn take_key(message: &[u8]) -> Result<([u8; KEY_BYTES], &[u8]), KeyError> {
    let (key, rest) = message.split_first_chunk().ok_or(KeyError)?;
    if message.len() > NOISE_MAX_BYTES { Err(KeyError) } else { Ok((*key, rest)) }
}

#[cfg(test)]
pub(crate) mod tests;

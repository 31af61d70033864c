//! The handshake: Noise_XXpsk3_25519_AESGCM_SHA256. Its two keys are the first secrets of the connection's key ring.
//!
//! Anybody on the way can send a message that does not verify, and it must not end the handshake: the true one may still come.
//! The library cannot go on after one, since what that message has mixed into the cipher's key stays there. So each end keeps
//! its ephemeral key and begins the same handshake again for the next message.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use sanwire_core::ClientId;
use snow::params::NoiseParams;
use snow::{Builder, HandshakeState};
use zeroize::{Zeroize, Zeroizing};

use crate::keys::{Identity, KeyError, Psk, Randomness, client_id};
use crate::noise::Resolver;
use crate::ring::KeyRing;
use crate::wire::setup::{Proof, Refusal};

const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";

/// Behind which message the secret of the password enters.
const PSK_AT: usize = 3;

/// The longest Noise message that either end takes, in bytes.
pub(crate) const NOISE_MAX_BYTES: usize = 512;

/// Third steps that a server reads in one handshake, of those whose sender has taken part in it: each may be a guess at the
/// password.
const GUESSES_MAX: u32 = 4;

/// By what a server proves, and its client sees, that a third step is refused by who has made the second one: the key of nobody else,
/// and of no other handshake.
pub(crate) struct RefusalKey(hmac::Key);

impl RefusalKey {
    /// The proof that this third step is refused.
    pub(crate) fn prove(&self, refusal: Refusal, third: &[u8]) -> Proof {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&[refusal as u8]);
        context.update(third);
        let mut proof = Proof::default();
        proof.copy_from_slice(&context.sign().as_ref()[..size_of::<Proof>()]);
        proof
    }

    /// Whether it is that.
    pub(crate) fn is_proven(&self, refusal: Refusal, third: &[u8], proof: &Proof) -> bool {
        verify_slices_are_equal(&self.prove(refusal, third), proof).is_ok()
    }
}

/// What one end begins its handshake with, as often as it must.
struct Beginning {
    ephemeral: Zeroizing<[u8; 32]>,
    psk: Zeroizing<Psk>,
    prologue: Vec<u8>,
}

impl Beginning {
    fn new(psk: &Psk, prologue: &[u8], random: &mut Randomness) -> Self {
        let (ephemeral, psk) = (Zeroizing::new(random.bytes()), Zeroizing::new(*psk));
        Beginning { ephemeral, psk, prologue: prologue.to_vec() }
    }

    fn builder<'a>(&'a self, identity: &'a Identity) -> Result<Builder<'a>, KeyError> {
        let params: NoiseParams = PATTERN.parse()?;
        let builder = Builder::with_resolver(params, Box::new(Resolver(self.ephemeral.clone())));
        Ok(builder.prologue(&self.prologue)?.local_private_key(identity.private())?.psk(PSK_AT as u8, &self.psk)?)
    }
}

/// The client's end, until a second step has verified.
pub(crate) struct Initiator {
    beginning: Beginning,
    /// As it was after the first step, unless it has read something since.
    fresh: Option<Handshake>,
}

impl Initiator {
    /// Also gives the first step.
    pub(crate) fn new(
        identity: &Identity,
        psk: &Psk,
        prologue: &[u8],
        random: &mut Randomness,
    ) -> Result<(Self, Vec<u8>), KeyError> {
        let beginning = Beginning::new(psk, prologue, random);
        let (handshake, first) = Self::begin(&beginning, identity)?;
        Ok((Initiator { beginning, fresh: Some(handshake) }, first))
    }

    fn begin(beginning: &Beginning, identity: &Identity) -> Result<(Handshake, Vec<u8>), KeyError> {
        let mut handshake = Handshake(beginning.builder(identity)?.build_initiator()?);
        let first = handshake.write(&[])?;
        Ok((handshake, first))
    }

    /// Reads a second step: its payload, and the handshake that goes on from there. Another one can be read afterwards.
    pub(crate) fn read(&mut self, identity: &Identity, message: &[u8]) -> Result<(Vec<u8>, Handshake), KeyError> {
        let mut handshake = match self.fresh.take() {
            Some(fresh) => fresh,
            None => Self::begin(&self.beginning, identity)?.0,
        };
        let payload = handshake.read(message)?;
        Ok((payload, handshake))
    }
}

/// Why a third step leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misread {
    /// Anybody can have sent it.
    Garbage,
    /// Its sender has taken part in the handshake, and has another password, or is not the client that it said it is.
    Guess {
        /// Whose key it has shown.
        by: ClientId,
    },
}

/// The server's end, from the second step on.
pub(crate) struct Responder {
    beginning: Beginning,
    first: Vec<u8>,
    offer: Vec<u8>,
    /// As it was after the second step, unless it has read something of the client's since.
    fresh: Option<Handshake>,
    refusal_key: RefusalKey,
    guesses: u32,
}

impl Responder {
    /// Reads a first step; also gives the second one, with this payload.
    pub(crate) fn new(
        (identity, psk): (&Identity, &Psk),
        prologue: &[u8],
        first: &[u8],
        offer: Vec<u8>,
        random: &mut Randomness,
    ) -> Result<(Self, Vec<u8>), KeyError> {
        let beginning = Beginning::new(psk, prologue, random);
        let (mut handshake, second) = Self::begin(&beginning, first, &offer, identity)?;
        let refusal_key = handshake.refusal_key();
        let first = first.to_vec();
        Ok((Responder { beginning, first, offer, fresh: Some(handshake), refusal_key, guesses: 0 }, second))
    }

    fn begin(
        beginning: &Beginning,
        first: &[u8],
        offer: &[u8],
        identity: &Identity,
    ) -> Result<(Handshake, Vec<u8>), KeyError> {
        let mut handshake = Handshake(beginning.builder(identity)?.build_responder()?);
        handshake.read(first)?;
        let second = handshake.write(offer)?;
        Ok((handshake, second))
    }

    /// The first step that it answers.
    pub(crate) fn first(&self) -> &[u8] {
        &self.first
    }

    /// By what this third step is refused.
    pub(crate) fn refusal_key(&self) -> &RefusalKey {
        &self.refusal_key
    }

    /// Reads a third step of this client: its payload, and the handshake, which is complete. When it does not verify another
    /// one can be read, as long as the handshake is not [worn](Responder::is_worn).
    pub(crate) fn read(
        &mut self,
        identity: &Identity,
        client: ClientId,
        message: &[u8],
    ) -> Result<(Vec<u8>, Handshake), Misread> {
        let mut handshake = match self.fresh.take() {
            Some(fresh) => fresh,
            None => Self::begin(&self.beginning, &self.first, &self.offer, identity).map_err(|_| Misread::Garbage)?.0,
        };
        let payload = handshake.read(message);
        let Some(proven) = handshake.remote_public().map(client_id) else {
            // Nothing of it was read: not even its sender's key.
            self.fresh = Some(handshake);
            return Err(Misread::Garbage);
        };
        self.guesses += 1;
        match payload {
            Ok(payload) if proven == client => Ok((payload, handshake)),
            _ => Err(Misread::Guess { by: proven }),
        }
    }

    /// Whether nothing more is read of this client.
    pub(crate) fn is_worn(&self) -> bool {
        self.guesses >= GUESSES_MAX
    }
}

/// One end of a handshake under way.
pub(crate) struct Handshake(HandshakeState);

impl Handshake {
    pub(crate) fn write(&mut self, payload: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut message = vec![0; NOISE_MAX_BYTES];
        let length = self.0.write_message(payload, &mut message)?;
        message.truncate(length);
        Ok(message)
    }

    fn read(&mut self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        if message.len() > NOISE_MAX_BYTES {
            return Err(KeyError);
        }
        let mut payload = vec![0; NOISE_MAX_BYTES];
        let length = self.0.read_message(message, &mut payload)?;
        payload.truncate(length);
        Ok(payload)
    }

    /// The far end's static public key, once it has been received.
    pub(crate) fn remote_public(&self) -> Option<&[u8]> {
        self.0.get_remote_static()
    }

    /// After the second step, at either end: the first key that `Split()` would give there. Only who has the ephemeral key of the first
    /// step, or those of the second one, comes to it.
    pub(crate) fn refusal_key(&mut self) -> RefusalKey {
        let (mut secret, mut other) = self.0.dangerously_get_raw_split();
        let key = RefusalKey(hmac::Key::new(HMAC_SHA256, &secret));
        secret.zeroize();
        other.zeroize();
        key
    }

    /// The keys of the connection, after the third step.
    pub(crate) fn finish(mut self) -> Result<KeyRing, KeyError> {
        if !self.0.is_handshake_finished() {
            return Err(KeyError);
        }
        let initiator = self.0.is_initiator();
        let (mut from_initiator, mut from_responder) = self.0.dangerously_get_raw_split();
        let (ours, theirs) =
            if initiator { (from_initiator, from_responder) } else { (from_responder, from_initiator) };
        let ring = KeyRing::new(Zeroizing::new(ours), Zeroizing::new(theirs));
        from_initiator.zeroize();
        from_responder.zeroize();
        ring
    }
}

impl Drop for Handshake {
    /// The library keeps its copy of the password's secret as long as its state.
    fn drop(&mut self) {
        let _ = self.0.set_psk(PSK_AT, &Psk::default());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The first two steps: both ends, and the second step.
    fn begun(client: &Identity, client_psk: Psk, server_psk: Psk) -> (Initiator, Responder, Vec<u8>) {
        let mut random = Randomness::new([9; 32]);
        let (initiator, first) = Initiator::new(client, &client_psk, b"p", &mut random).unwrap();
        let offer = b"offer".to_vec();
        let (responder, second) = Responder::new((&server(), &server_psk), b"p", &first, offer, &mut random).unwrap();
        (initiator, responder, second)
    }

    fn client() -> Identity {
        Identity::from_private([1; 32]).unwrap()
    }

    fn server() -> Identity {
        Identity::from_private([2; 32]).unwrap()
    }

    /// Both ends' rings after a handshake, the client's first.
    pub(crate) fn shake(client_psk: Psk, server_psk: Psk) -> Result<(KeyRing, KeyRing), KeyError> {
        let client = client();
        let (mut initiator, mut responder, second) = begun(&client, client_psk, server_psk);
        let (offer, mut ours) = initiator.read(&client, &second)?;
        assert_eq!(offer, b"offer");
        let third = ours.write(b"mine")?;
        let (mine, theirs) = responder.read(&server(), client.client_id(), &third).map_err(|_| KeyError)?;
        assert_eq!(mine, b"mine");
        assert_eq!(theirs.remote_public(), Some(&client.public()[..]));
        Ok((ours.finish()?, theirs.finish()?))
    }

    #[test]
    fn another_password_does_not_verify() {
        assert!(shake([3; 32], [4; 32]).is_err());
    }

    #[test]
    fn a_client_goes_on_after_second_steps_that_do_not_verify() {
        let client = client();
        let (mut initiator, mut responder, second) = begun(&client, [3; 32], [3; 32]);
        for at in 0..second.len() {
            let mut forged = second.clone();
            forged[at] ^= 1;
            assert!(initiator.read(&client, &forged).is_err(), "byte {at}");
        }
        let (_, mut ours) = initiator.read(&client, &second).unwrap();
        let third = ours.write(b"mine").unwrap();
        assert!(responder.read(&server(), client.client_id(), &third).is_ok());
    }

    #[test]
    fn a_server_goes_on_after_third_steps_that_do_not_verify_but_reads_few_guesses() {
        let client = client();
        let (mut initiator, mut responder, second) = begun(&client, [3; 32], [3; 32]);
        let third = initiator.read(&client, &second).unwrap().1.write(b"mine").unwrap();
        let mut read =
            |message: &[u8]| responder.read(&server(), client.client_id(), message).map(|(payload, _)| payload);
        let spoilt = |at: usize| {
            let mut spoilt = third.clone();
            spoilt[at] ^= 1;
            spoilt
        };
        // The sender's key stands first, with its tag.
        for at in 0..48 {
            assert_eq!(read(&spoilt(at)), Err(Misread::Garbage), "byte {at}");
        }
        for at in 48..48 + GUESSES_MAX as usize - 1 {
            assert_eq!(read(&spoilt(at)), Err(Misread::Guess { by: client.client_id() }), "byte {at}");
        }
        assert_eq!(read(&third).unwrap(), b"mine");
        assert!(responder.is_worn());
    }
}

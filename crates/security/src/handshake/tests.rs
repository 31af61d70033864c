//! Both ends of a handshake, beside another implementation of Noise.

use snow::{Builder, HandshakeState};

use super::*;

/// The connection that all are of.
const CONNECTION: u32 = 5;

/// The first two steps: both ends, and the second step with its mark.
fn begun(server_psk: Psk) -> (Initiator, Responder, (Vec<u8>, Mark)) {
    let mut random = Randomness::new([9; 32]);
    let (initiator, first) = Initiator::new(b"p", &mut random).unwrap();
    let (responder, noise, mark) =
        Responder::new((&server(), &server_psk), b"p", &first, (CONNECTION, b"offer"), &mut random).unwrap();
    (initiator, responder, (noise, mark))
}

fn step((noise, mark): &(Vec<u8>, Mark)) -> SecondStep<'_> {
    SecondStep { connection: CONNECTION, noise, mark: *mark }
}

fn client() -> Identity {
    Identity::from_private([1; 32]).unwrap()
}

fn server() -> Identity {
    Identity::from_private([2; 32]).unwrap()
}

/// The third step after the second.
fn third(initiator: &Initiator, second: &(Vec<u8>, Mark), psk: Psk) -> (Vec<u8>, Secrets) {
    let met = initiator.read(step(second)).unwrap();
    assert_eq!((&met.server, &met.payload[..]), (server().public(), &b"offer"[..]));
    met.answer((&client(), &psk), b"mine", &mut Randomness::new([8; 32])).unwrap()
}

/// Both ends' rings after a handshake, the client's first.
pub(crate) fn shake(client_psk: Psk, server_psk: Psk) -> Result<(KeyRing, KeyRing), KeyError> {
    let (initiator, mut responder, second) = begun(server_psk);
    let (third, ours) = third(&initiator, &second, client_psk);
    let (mine, theirs) = responder.read(client().client_id(), &third).map_err(|_| KeyError)?;
    assert_eq!(mine, b"mine");
    Ok((ours.of_client()?, theirs.of_server()?))
}

#[test]
fn another_password_or_another_name_is_a_guess_of_who_has_shown_his_key() {
    assert!(shake([3; 32], [3; 32]).is_ok());
    let by = client().client_id();
    for (psk, name) in [([4; 32], by), ([3; 32], server().client_id())] {
        let (initiator, mut responder, second) = begun([3; 32]);
        let (third, _) = third(&initiator, &second, psk);
        assert_eq!(responder.read(name, &third).map(drop), Err(Misread::Guess { by }));
    }
}

#[test]
fn a_handshake_has_one_guess() {
    let (initiator, mut responder, second) = begun([3; 32]);
    let by = client().client_id();
    let [wrong, right] = [[4; 32], [3; 32]].map(|psk| third(&initiator, &second, psk).0);
    assert_eq!(responder.read(by, &wrong).map(drop), Err(Misread::Guess { by }));
    assert_eq!(responder.read(by, &right).map(drop), Err(Misread::Garbage), "whatever it is");
}

#[test]
fn a_client_goes_on_after_second_steps_that_do_not_verify() {
    let (initiator, mut responder, second) = begun([3; 32]);
    for at in 0..second.0.len() {
        let mut forged = second.clone();
        forged.0[at] ^= 1;
        assert!(initiator.read(step(&forged)).is_err(), "byte {at}");
    }
    assert!(initiator.read(SecondStep { connection: 6, ..step(&second) }).is_err(), "of another connection");
    assert!(initiator.read(SecondStep { mark: [0; 16], ..step(&second) }).is_err());
    let (third, _) = third(&initiator, &second, [3; 32]);
    assert!(responder.read(client().client_id(), &third).is_ok());
}

#[test]
fn who_knows_the_servers_key_knows_its_second_steps_by_their_mark() {
    let (initiator, _, second) = begun([3; 32]);
    let is_of = |key: &[u8; 32]| initiator.mark_key(key).unwrap().has_marked(step(&second));
    assert!(is_of(server().public()) && !is_of(client().public()));
}

#[test]
fn a_third_step_of_which_any_byte_is_spoilt_is_garbage_and_no_guess() {
    let (initiator, mut responder, second) = begun([3; 32]);
    let (third, _) = third(&initiator, &second, [3; 32]);
    for at in 0..third.len() {
        let mut spoilt = third.clone();
        spoilt[at] ^= 1;
        assert_eq!(responder.read(client().client_id(), &spoilt).map(drop), Err(Misread::Garbage), "byte {at}");
    }
    assert_eq!(responder.read(client().client_id(), &third).map(|(payload, _)| payload), Ok(b"mine".to_vec()));
}

#[test]
fn who_has_begun_a_handshake_shows_one_key_in_it() {
    let (initiator, mut responder, second) = begun([3; 32]);
    let mut as_another =
        initiator.read(step(&second)).unwrap().answer((&server(), &[3; 32]), b"", &mut Randomness::new([8; 32]));
    let (another, _) = as_another.as_mut().unwrap();
    let by = server().client_id();
    assert_eq!(responder.read(client().client_id(), another).map(drop), Err(Misread::Guess { by }));
    let (third, _) = third(&initiator, &second, [3; 32]);
    assert_eq!(responder.read(client().client_id(), &third).map(drop), Err(Misread::Garbage), "what is not computed");
}

/// An end of another implementation. Its ephemeral key is the one that [`Randomness`] gives first.
fn other(is_initiator: bool, random: &mut Randomness) -> HandshakeState {
    let builder = Builder::new("Noise_XX_25519_AESGCM_SHA256".parse().unwrap()).prologue(b"p").unwrap();
    let (ephemeral, private) = (random.bytes(), [if is_initiator { 1 } else { 2 }; 32]);
    let builder = builder.local_private_key(&private).unwrap().fixed_ephemeral_key_for_testing_only(&ephemeral);
    if is_initiator { builder.build_initiator().unwrap() } else { builder.build_responder().unwrap() }
}

#[test]
fn another_implementation_of_noise_comes_to_the_same_messages_and_keys() {
    let mut theirs = [other(true, &mut Randomness::new([9; 32])), other(false, &mut Randomness::new([7; 32]))];
    let (mut message, mut payload) = ([0; 512], [0; 512]);
    let (initiator, first) = Initiator::new(b"p", &mut Randomness::new([9; 32])).unwrap();
    let length = theirs[0].write_message(&[], &mut message).unwrap();
    assert_eq!(message[..length], first);
    let mut random = Randomness::new([7; 32]);
    let (mut responder, second, mark) =
        Responder::new((&server(), &[3; 32]), b"p", &first, (CONNECTION, b"offer"), &mut random).unwrap();
    theirs[1].read_message(&first, &mut payload).unwrap();
    let said = [responder.party.share(), &b"offer"[..]].concat();
    let length = theirs[1].write_message(&said, &mut message).unwrap();
    assert_eq!(message[..length], second);
    let (third, _) = third(&initiator, &(second, mark), [3; 32]);
    let length = theirs[1].read_message(&third, &mut payload).unwrap();
    assert_eq!(length, KEY_BYTES + b"mine".len() + TAG_BYTES);
    let (sealed, rest) = third.split_first_chunk().unwrap();
    let (_, mut state) = responder.show(sealed).unwrap();
    state.open(rest).unwrap();
    let (from_initiator, from_responder) = theirs[1].dangerously_get_raw_split();
    assert_eq!(state.split().map(|secret| *secret), [from_initiator, from_responder]);
}

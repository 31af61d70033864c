//! Who has another password: how fast he may try, and whom he keeps out.

use std::time::Duration;

use sanwire_core::{ClientId, Protection};
use sanwire_hdsp::wire::connection::{Request, SessionName, Step};
use sanwire_hdsp::wire::offer::{ClientOffer, Terms, Waiting};
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::{Class, DiskType, ErrorCode, Header, PacketType, Pcu};
use sanwire_security::handshake::{Initiator, SecondStep};
use sanwire_security::keys::{Identity, Randomness};

use crate::world::{Habits, World, path};

const RIGHT: [u8; 32] = [9; 32];
const WRONG: [u8; 32] = [8; 32];

/// What comes of a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Accepted,
    Refused(ErrorCode),
    Nothing,
}

/// Shakes hands by hand.
struct Guesser {
    world: World,
    random: Randomness,
    attempts: u64,
}

/// A handshake that has its challenge.
struct Begun {
    header: Header,
    attempt: u64,
    client: ClientId,
    initiator: Initiator,
    mark: [u8; 16],
    noise: Vec<u8>,
}

impl Guesser {
    fn new() -> Self {
        // The world's own client never asks.
        let world = World::new(Habits { is_open: true, is_listed: false, ..Habits::default() });
        Guesser { world, random: Randomness::new([7; 32]), attempts: 0 }
    }

    fn own(&self) -> ClientId {
        Identity::from_private([6; 32]).unwrap().client_id()
    }

    fn send(&mut self, header: Header, step: Step<'_>) -> Vec<Vec<u8>> {
        let pcu = Pcu { header, class: Class::Connection, is_sealed: false, number: 0 };
        self.world.server.handle_input(path(9), &pcu.open_packet(&step.write()), self.world.now);
        std::iter::from_fn(|| self.world.server.poll_transmit(self.world.now))
            .map(|(_, packet)| packet.head.to_vec())
            .collect()
    }

    fn begin(&mut self, client: ClientId) -> Option<Begun> {
        let header = Header {
            from_server: false,
            error: None,
            packet_type: PacketType::Pcu,
            disk_type: DiskType::Any,
            disk_address: 0,
            server_port: 0,
            client_port: 7,
        };
        self.attempts += 1;
        let attempt = self.attempts;
        let session = SessionName { client, run: attempt, epoch: 0 };
        let mut request = Request { attempt, session, server_name: "", noise: [0; 32], cookie: None };
        let (initiator, first) = Initiator::new(&request.prologue(7), &mut self.random).unwrap();
        request.noise.copy_from_slice(&first);
        let answers = self.send(header, Step::Request(request));
        let raw = RawPcu::read(answers.first()?).unwrap();
        let Ok(Step::Challenge { mark, noise, .. }) = Step::read(raw.operation) else { panic!("no challenge") };
        let header = Header { server_port: raw.pcu.header.server_port, ..header };
        Some(Begun { header, attempt, client, initiator, mark, noise: noise.to_vec() })
    }

    fn prove(&mut self, begun: &Begun, psk: [u8; 32]) -> Answer {
        let Begun { header, attempt, client, ref initiator, mark, ref noise } = *begun;
        let met = initiator.read(SecondStep { connection: header.connection(), noise, mark }).unwrap();
        let offer = ClientOffer {
            terms: Terms { packet_max_bytes: 1500, window_packets: 10, group_packets: 8 },
            protection: Protection::Checksum,
            disk_type: DiskType::Any,
            disk_address: 3,
            volume: "v".into(),
            waiting: Waiting::default(),
        };
        let key = Identity::from_private([6; 32]).unwrap();
        let (third, _) = met.answer((&key, &psk), &offer.write(), &mut self.random).unwrap();
        let answers = self.send(header, Step::Proof { attempt, client, noise: &third });
        let raw = answers.first().map(|answer| RawPcu::read(answer).unwrap());
        match raw.map(|raw| (raw.pcu.is_sealed, raw.pcu.header.error)) {
            Some((true, None)) => Answer::Accepted,
            Some((false, Some(reason))) => Answer::Refused(reason),
            None => Answer::Nothing,
            other => panic!("{other:?}"),
        }
    }

    fn guess(&mut self, psk: [u8; 32]) -> Answer {
        let client = self.own();
        self.begin(client).map_or(Answer::Nothing, |begun| self.prove(&begun, psk))
    }
}

const REFUSED: Answer = Answer::Refused(ErrorCode::NotAuthentic);

#[test]
fn handshakes_that_were_begun_before_are_no_way_around_the_wait() {
    let mut guesser = Guesser::new();
    let client = guesser.own();
    let begun: Vec<Begun> = (0..5).map(|_| guesser.begin(client).unwrap()).collect();
    assert_eq!(guesser.prove(&begun[0], WRONG), REFUSED);
    for later in &begun[1..] {
        assert_eq!(guesser.prove(later, WRONG), Answer::Nothing);
    }
    assert_eq!(guesser.world.server.counters().throttled, 4);
    guesser.world.now += Duration::from_millis(60);
    assert_eq!(guesser.prove(&begun[1], RIGHT), Answer::Accepted);
}

#[test]
fn other_names_for_one_key_are_no_way_around_the_wait() {
    let mut guesser = Guesser::new();
    let begun: Vec<Begun> = (0..5).map(|name| guesser.begin(ClientId([100 + name; 16])).unwrap()).collect();
    let answers: Vec<Answer> = begun.iter().map(|begun| guesser.prove(begun, WRONG)).collect();
    assert_eq!(answers, [REFUSED, Answer::Nothing, Answer::Nothing, Answer::Nothing, Answer::Nothing]);
}

#[test]
fn a_handshake_is_over_with_its_first_guess() {
    let mut guesser = Guesser::new();
    let client = guesser.own();
    let begun = guesser.begin(client).unwrap();
    assert_eq!(guesser.prove(&begun, WRONG), REFUSED);
    guesser.world.now += Duration::from_secs(3);
    assert_eq!(guesser.prove(&begun, RIGHT), Answer::Nothing);
}

#[test]
fn who_knows_the_password_after_all_is_forgiven() {
    let mut guesser = Guesser::new();
    for _ in 0..6 {
        assert_eq!(guesser.guess(WRONG), REFUSED);
        guesser.world.now += Duration::from_secs(3);
    }
    assert_eq!(guesser.guess(RIGHT), Answer::Accepted);
    assert_eq!(guesser.guess(WRONG), REFUSED);
    guesser.world.now += Duration::from_millis(60);
    assert_eq!(guesser.guess(RIGHT), Answer::Accepted, "the first wait is short");
}

#[test]
fn a_server_that_goes_away_accepts_nobody() {
    let mut guesser = Guesser::new();
    let client = guesser.own();
    let begun = guesser.begin(client).unwrap();
    guesser.world.server.close(guesser.world.now);
    assert_eq!(guesser.prove(&begun, RIGHT), Answer::Nothing);
    assert_eq!((guesser.guess(RIGHT), guesser.world.server.sessions()), (Answer::Nothing, 0));
}

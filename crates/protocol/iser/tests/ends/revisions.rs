//! Targets that speak only revision 1 of MPA (RFC 5044), which has no IRD and no ORD: our client asks again, for that, and our target answers.

use std::collections::BTreeSet;

use sanwire_iscsi::{ClientEvent, ConnectionId};
use sanwire_iwarp::wire::Startup;

use super::rounds::pattern;
use super::world::{BLOCK_BYTES, World, config, name};

/// What a target answers to a request, if it is not ours that does.
type Answer = fn(&Startup) -> Option<Startup>;

/// A client, what is in between, and the revisions that were asked for.
struct Asked {
    world: World,
    answer: Answer,
    known: BTreeSet<ConnectionId>,
    revisions: Vec<u8>,
}

impl Asked {
    fn new(answer: Answer) -> Asked {
        let world = World::new(config(Some(name())), usize::MAX);
        Asked { world, answer, known: BTreeSet::new(), revisions: Vec::new() }
    }

    /// Something passes; whether it did.
    fn step(&mut self) -> bool {
        self.world.drain();
        for (connection, wire) in &mut self.world.wires {
            let bytes: Vec<u8> = wire.iter().copied().collect();
            if bytes.is_empty() || !self.known.insert(*connection) {
                continue;
            }
            let (request, length) = Startup::read(&bytes, false).expect("a request").expect("all of it");
            assert_eq!((length, &request.private_data[..1]), (bytes.len(), &[0x80][..]));
            assert_eq!(request.enhanced.is_some(), request.revision == 2);
            self.revisions.push(request.revision);
            if let Some(reply) = (self.answer)(&request) {
                wire.clear();
                self.world.host.output.entry(*connection).or_default().extend(reply.write());
            }
        }
        self.world.step()
    }

    /// Until all commands are answered, and there are all connections.
    fn settle(&mut self) {
        for _ in 0..5000 {
            if self.step() {
                continue;
            }
            if self.world.client.in_transit() == 0 && self.world.connections().len() == 4 {
                return;
            }
            self.world.pass_time();
        }
        panic!("{} commands do not end: {:?}", self.world.client.in_transit(), self.world.events);
    }
}

/// A reply of revision 1.
fn old(request: &Startup, is_rejected: bool) -> Startup {
    Startup { is_reply: true, is_rejected, revision: 1, enhanced: None, private_data: Vec::new(), ..request.clone() }
}

fn accepts(request: &Startup) -> Option<Startup> {
    (request.revision > 1).then(|| old(request, false))
}

fn refuses(request: &Startup) -> Option<Startup> {
    (request.revision > 1).then(|| old(request, true))
}

#[test]
fn a_target_that_answers_with_revision_1_is_asked_for_it_as_long_as_the_session_lives() {
    for answer in [accepts as Answer, refuses] {
        let mut asked = Asked::new(answer);
        let data = pattern(40 * BLOCK_BYTES, 3);
        asked.world.order(0x2a, 0, Some(data.clone()), 0);
        let began = asked.world.now;
        asked.settle();
        assert_eq!(asked.revisions, [2, 1, 1, 1, 1], "once, and then as it has answered");
        assert_eq!(asked.world.now, began, "nobody waits for that");
        let id = asked.world.order(0x28, 0, None, data.len());
        asked.settle();
        assert!(asked.world.data_of(id) == Some(data));
        // There may be another target after a loss.
        asked.revisions.clear();
        asked.world.connections().into_iter().for_each(|connection| asked.world.cut(connection));
        asked.world.order(0, 0, None, 0);
        asked.settle();
        assert_eq!(asked.revisions, [2, 1, 1, 1, 1]);
    }
}

#[test]
fn a_target_of_revision_2_is_never_asked_for_another_one() {
    let mut asked = Asked::new(|_| None);
    asked.world.order(0, 0, None, 0);
    asked.settle();
    assert_eq!(asked.revisions, [2; 4]);
}

/// It says that it speaks revision 1, and refuses that, too.
#[test]
fn a_target_that_takes_no_revision_is_not_asked_without_a_pause() {
    let mut asked = Asked::new(|request| Some(old(request, true)));
    asked.world.order(0, 0, None, 0);
    let is_over = |asked: &Asked| asked.world.events.iter().any(|event| matches!(event, ClientEvent::GivenUp(_)));
    let began = asked.world.now;
    for _ in 0..5000 {
        if is_over(&asked) {
            break;
        }
        if !asked.step() && !is_over(&asked) {
            asked.world.pass_time();
        }
    }
    assert!(is_over(&asked), "{:?}", asked.world.events);
    let (seconds, count) = ((asked.world.now - began).as_secs(), asked.revisions.len());
    assert!(asked.revisions.chunks(2).all(|asked| [2, 1].starts_with(asked)), "{:?}", asked.revisions);
    assert!((5..=11).contains(&seconds) && (4..40).contains(&count), "{count} requests in {seconds} s");
}

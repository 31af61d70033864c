//! Any two honest ends agree, however their bytes are cut; damaged bytes end a login, and nothing else.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct World {
    wishes: DesiredParameters,
    is_discovery: bool,
    has_user: bool,
    is_mutual: bool,
    md5_only: bool,
    requires_digests: bool,
    piece: usize,
    seed: u8,
}

fn worlds() -> impl Strategy<Value = World> {
    let wishes = (any::<bool>(), 0..4u8, 0..10u16);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (wishes, flags, 1..300usize, any::<u8>()).prop_map(|(wishes, flags, piece, seed)| World {
        wishes: DesiredParameters { digests: wishes.0, error_recovery_level: wishes.1, connections: wishes.2 },
        is_discovery: flags.0,
        has_user: flags.1,
        is_mutual: flags.2,
        md5_only: flags.3,
        requires_digests: flags.4,
        piece,
        seed,
    })
}

fn ends(world: &World) -> (ClientLogin, ServerLogin, OneTarget) {
    let (user, target) = (credential("user", "the secret of a user"), credential("target", "the target's secret"));
    let config = ClientConfig {
        target: (!world.is_discovery).then(|| TARGET.parse().unwrap()),
        wishes: world.wishes,
        credential: world.has_user.then(|| user.clone()),
        target_credential: (world.has_user && world.is_mutual).then(|| target.clone()),
        ..config()
    };
    let users = if world.has_user { vec![user] } else { vec![] };
    let authentication = Authentication { users, mutual: Some(target), algorithms: vec![] };
    let mut directory = OneTarget { discovery: authentication.clone(), ..OneTarget::default() };
    directory.entry.authentication = authentication;
    directory.entry.requires_digests = world.requires_digests;
    (client(&config, world.md5_only), server_with_seed(world.seed), directory)
}

/// Lets both ends talk while the bytes are damaged, until one of them ends it or falls silent.
fn talk_damaged(client: &mut ClientLogin, server: &mut ServerLogin, directory: &OneTarget, flips: &[(usize, u8)]) {
    let mut position = 0;
    let mut damage = |bytes: &mut Vec<u8>| {
        for (at, mask) in flips {
            if let Some(byte) = at.checked_sub(position).and_then(|at| bytes.get_mut(at)) {
                *byte ^= mask;
            }
        }
        position += bytes.len();
    };
    for _ in 0..200 {
        let mut out =
            bytes(std::iter::from_fn(|| client.poll_transmit()).map(|(request, text)| (request.write(), text)));
        damage(&mut out);
        server.handle_input(&out, directory, Instant::ZERO);
        if server.poll_outcome().is_some() {
            return;
        }
        let mut back = sent(server);
        damage(&mut back);
        if back.is_empty() {
            // It waits for more: its deadline ends it.
            server.handle_timeout(server.poll_timeout().expect("a deadline"));
            assert!(server.poll_outcome().is_some());
            return;
        }
        for (header, text) in pdus(&back) {
            if client.handle(&LoginResponse::read(&header), &text).is_some() {
                return;
            }
        }
    }
    panic!("the login does not end");
}

proptest! {
    #[test]
    fn honest_ends_always_agree(world in worlds()) {
        let (mut client, mut server, directory) = ends(&world);
        let meeting = meet(&mut client, &mut server, &directory, world.piece);
        let client = meeting.client.expect("it is let in");
        let Some(LoginOutcome::Admitted(server)) = meeting.server else { panic!("{:?}", meeting.server) };
        prop_assert_eq!(client.session, server.session);
        prop_assert_eq!(client.connection.digests, server.connection.digests);
        prop_assert_eq!(client.connection.send_data_max_bytes, server.connection.receive_data_max_bytes);
        prop_assert_eq!(client.connection.receive_data_max_bytes, server.connection.send_data_max_bytes);
        prop_assert_eq!(server.user.is_some(), world.has_user);
    }

    #[test]
    fn damaged_bytes_end_a_login_and_nothing_else(
        world in worlds(),
        flips in proptest::collection::vec((0..2500usize, 1..=255u8), 1..6),
    ) {
        let (mut client, mut server, directory) = ends(&world);
        talk_damaged(&mut client, &mut server, &directory, &flips);
    }

    #[test]
    fn any_responses_end_a_login(
        responses in proptest::collection::vec((any::<[u8; 3]>(), 0..4u8, "[A-Za-z_=0-9,\0]{0,80}"), 65),
    ) {
        let config = ClientConfig { credential: Some(credential("user", "the secret of a user")), ..config() };
        let mut client = client(&config, false);
        let ended = responses.iter().any(|([flags, class, detail], stage, text)| {
            let response = LoginResponse {
                transits: flags & 1 == 0,
                continues: flags & 6 == 0,
                current_stage: stage & 1,
                next_stage: *stage,
                isid: config.isid.0,
                status_class: if *class < 200 { 0 } else { class % 4 },
                status_detail: detail % 12,
                ..LoginResponse::default()
            };
            client.handle(&response, text.as_bytes()).is_some()
        });
        prop_assert!(ended);
    }
}

use super::*;

fn port(number: u8, target: u32) -> SessionPort {
    let target = Some(format!("iqn.2026-11.org.sanwire:{target}"));
    SessionPort { front: 1, initiator: "iqn.2026-11.org.sanwire:test".into(), id: number.to_string(), target }
}

fn registry(shards: usize) -> MutexGuard<'static, Sessions> {
    Box::leak(Box::new(Registry::new(shards, &Budget::new(1 << 20)))).lock()
}

fn owner(address: &str, is_stranger: bool) -> Owner {
    Owner::new(address.parse().unwrap(), "iqn.2026-11.org.sanwire:test".into(), is_stranger)
}

fn place(sessions: &mut Sessions, port: SessionPort, joined: u16) -> Option<(usize, Admission)> {
    let place = sessions.place((port, None), 1, owner("10.0.0.1", false), joined).ok()?;
    Some((place.shard, place.admission))
}

/// A discovery session; also gives the one that ends for it.
fn discover(sessions: &mut Sessions, owner: Owner) -> Result<(Admission, Option<NexusId>), Full> {
    let place = sessions.place((SessionPort { target: None, ..port(0, 0) }, None), 1, owner, 0)?;
    Ok((place.admission, place.loser.map(|(_, nexus)| nexus)))
}

#[test]
fn of_strangers_the_oldest_of_the_address_with_the_most_ends() {
    let mut sessions = registry(2);
    let alone = discover(&mut sessions, owner("10.0.0.9", true)).unwrap().0;
    let most = DISCOVERIES_OF_STRANGERS.limit - 1;
    let own: Vec<Admission> = (0..most).map(|_| discover(&mut sessions, owner("10.0.0.1", true)).unwrap().0).collect();
    for loser in &own {
        let (_, lost) = discover(&mut sessions, owner("10.0.0.2", true)).unwrap();
        // As soon as the newcomers have more, they lose theirs.
        let Some(lost) = lost else { panic!("one too many") };
        assert_ne!(lost, alone.nexus, "who has one keeps it");
        assert!(lost == loser.nexus || !own.iter().any(|one| one.nexus == lost), "the oldest goes first");
    }
    assert!(discover(&mut sessions, owner("10.0.0.3", true)).unwrap().1.is_some());
    assert!(discover(&mut sessions, owner("10.0.0.3", true)).is_err(), "those that were told to end have not");
    sessions.closed(own[0].nexus, own[0].session);
    assert!(discover(&mut sessions, owner("10.0.0.3", true)).is_ok());
}

#[test]
fn who_has_too_many_connections_loses_a_discovery_session_or_gets_no_more() {
    let few = Budget { connections: 4, ..Budget::new(1 << 20) };
    let mut sessions = Box::leak(Box::new(Registry::new(1, &few))).lock();
    let (discovery, _) = discover(&mut sessions, owner("10.0.0.1", false)).unwrap();
    let mut others = 0;
    let full = loop {
        match sessions.place((port(others, 0), None), 1, owner("10.0.0.1", false), 0) {
            Ok(Place { loser: Some((_, nexus)), .. }) => {
                assert_eq!(nexus, discovery.nexus);
                sessions.closed(nexus, discovery.session);
            }
            Ok(_) => {}
            Err(full) => break full,
        }
        others += 1;
    };
    assert_eq!((others, full.to_string().contains("of its network")), (3, true), "{full}");
}

#[test]
fn new_sessions_go_where_the_fewest_are() {
    let mut sessions = registry(3);
    let places: Vec<(usize, Admission)> =
        (0..6).map(|number| place(&mut sessions, port(number, 0), 0).unwrap()).collect();
    assert_eq!(places.iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
    let (_, second) = places[1];
    sessions.closed(second.nexus, second.session);
    assert_eq!(place(&mut sessions, port(9, 0), 0).unwrap().0, 1);
    assert!(places.iter().all(|(_, admission)| admission.session != 0 && admission.nexus.0 > NEXUS_BASE));
}

#[test]
fn a_port_that_comes_again_finds_its_shard_and_has_a_new_session() {
    let mut sessions = registry(2);
    place(&mut sessions, port(0, 0), 0).unwrap();
    let (shard, old) = place(&mut sessions, port(1, 0), 0).unwrap();
    let (again, new) = place(&mut sessions, port(1, 0), 0).unwrap();
    assert_eq!((shard, again), (1, 1), "though the other shard has fewer");
    assert_ne!((old.session, old.nexus), (new.session, new.nexus));
    sessions.closed(new.nexus, new.session);
    assert_eq!(place(&mut sessions, port(1, 0), 0).unwrap().0, 1, "the older one is still there");
    assert_eq!(place(&mut sessions, port(1, 1), 0).unwrap().0, 0, "another target is another session");
}

#[test]
fn a_further_connection_goes_to_its_session() {
    let mut sessions = registry(2);
    place(&mut sessions, port(0, 0), 0).unwrap();
    let (_, leading) = place(&mut sessions, port(1, 0), 0).unwrap();
    assert_eq!(place(&mut sessions, port(1, 0), leading.session), Some((1, leading)));
    let count = sessions.by_tsih.len();
    assert!(place(&mut sessions, port(1, 0), 4711).is_some(), "the shard refuses it");
    assert_eq!(sessions.by_tsih.len(), count);
}

#[test]
fn numbers_of_live_sessions_are_not_given_again() {
    let mut sessions = registry(1);
    let (_, first) = place(&mut sessions, port(0, 0), 0).unwrap();
    sessions.last_tsih = u16::MAX;
    let (_, second) = place(&mut sessions, port(1, 0), 0).unwrap();
    assert_eq!((first.session, second.session), (1, 2));
    sessions.closed(second.nexus, first.session);
    assert!(sessions.by_tsih.contains_key(&first.session), "not that session");
}

#[test]
fn who_has_all_it_may_have_comes_again_in_the_place_of_what_it_lost() {
    let few = Budget { connections: 4, ..Budget::new(1 << 20) };
    let mut sessions = Box::leak(Box::new(Registry::new(1, &few))).lock();
    let own = || owner("10.0.0.1", false);
    let mut places: Vec<Place> =
        (0..3).map(|number| sessions.place((port(number, 0), None), 1, own(), 0).unwrap()).collect();
    assert!(sessions.place((port(3, 0), None), 1, own(), 0).is_err());

    // Its connection is not known to be lost yet.
    let again = sessions.place((port(0, 0), None), 1, own(), 0).unwrap();
    assert_eq!(again.loser, Some((0, places[0].admission.nexus)));
    assert!(sessions.place((port(0, 0), None), 1, own(), 0).is_err(), "once, until that has ended");
    assert!(
        sessions.place((port(1, 0), None), 2, own(), 0).is_err(),
        "a session through another portal group replaces none"
    );
    assert!(sessions.place((port(1, 0), None), 1, owner("10.0.0.1", true), 0).is_err(), "nor does somebody else's");
    let old = places.remove(0).admission;
    sessions.closed(old.nexus, old.session);

    // It is, and the session waits for another.
    let waiting = places.remove(0).admission;
    let joined = sessions.place((port(1, 0), None), 1, own(), waiting.session).unwrap();
    assert!(sessions.place((port(1, 0), None), 1, own(), waiting.session).is_err(), "a second one is one more");
    drop(joined);
}

#[test]
fn who_has_logged_out_and_does_not_read_keeps_no_place_from_others() {
    let mut sessions = registry(2);
    let port = SessionPort { target: None, ..port(0, 0) };
    let mut place = |address: &str| sessions.place((port.clone(), None), 1, owner(address, true), 0);
    let mut greedy: Vec<Place> = Vec::new();
    for _ in 0..DISCOVERIES_OF_STRANGERS.limit {
        let place = place("10.0.0.1").unwrap();
        assert_eq!(place.loser, None);
        greedy.push(place);
    }
    greedy.iter().for_each(|place| sessions.closed(place.admission.nexus, place.admission.session));
    let mut place = |address: &str| sessions.place((port.clone(), None), 1, owner(address, true), 0);
    let mut kept = Vec::new();
    for number in 0..3 {
        let other = place("10.0.0.2").unwrap();
        assert_eq!(other.loser, Some((greedy[0].shard, greedy[0].admission.nexus)), "{number}");
        // Its shard has cut the connection.
        greedy.remove(0);
        kept.push(other);
    }
    // From now on those that are told to end do not.
    let is_greedy = |(_, loser)| greedy.iter().any(|place| place.admission.nexus == loser);
    for number in 0..greedy.len() {
        let other = place("10.0.0.2").unwrap();
        assert!(other.loser.is_some_and(is_greedy), "{number}");
        kept.push(other);
    }
    let more = std::iter::from_fn(|| place("10.0.0.2").ok()).count();
    assert_eq!((greedy.len() + more) as u64, DISCOVERIES_OF_STRANGERS.limit);
}

//! Windows that an authentic peer should not ask for.

use sanwire_core::{Instant, Lun};
use sanwire_scsi::{Reply, Status, build};

use super::world::{MS, bytes};
use super::{client, exchange, path, server};
use crate::wire::Opcode;
use crate::wire::command::{Answer, Ask};
use crate::wire::flow::{IN_FLIGHT_MAX_PACKETS, Window, Windows};
use crate::{Client, ClientEvent, Order, Server, ServerEvent};

const NOW: Instant = Instant::ZERO;

/// What no window can be.
const IMPOSSIBLE: [(u16, u16); 6] = [(0, 0), (0, 1), (1, 0), (u16::MAX, u16::MAX), (u16::MAX, 1), (1, u16::MAX)];

/// What a window can be, for who has the room.
const LARGE: [(u16, u16); 3] = [(64, 64), (1, 4096), (4096, 1)];

/// "Set windows", to the same in both directions.
fn set_windows((packets, in_flight): (u16, u16)) -> Vec<u8> {
    let window = [packets.to_be_bytes(), in_flight.to_be_bytes()].concat();
    [&[1, 0, 0, 0, 0, 1], &window[..], &window[..], &[0, 1]].concat()
}

/// Packets in flight in each direction, as the server sees each client.
fn in_flight(server: &Server) -> Vec<(u32, u32)> {
    let windows = server.connections.values().map(|connection| connection.channel.windows());
    windows.map(|windows| (windows.outward.in_flight_packets(), windows.inward.in_flight_packets())).collect()
}

/// Whether a command of each client, of more packets than one, is answered.
fn are_served(server: &mut Server, clients: &mut [Client]) -> bool {
    for client in clients.iter_mut() {
        while client.poll_event().is_some() {}
        let (data_out, data_in) = (Some(vec![1; 50_000].into()), Some(vec![0; 50_000].into()));
        let ask = Ask::Command(build::test_unit_ready());
        client.order(Order { lun: Lun::default(), ask, is_repeatable: true, data_out, data_in }, NOW).unwrap();
    }
    for _ in 0..200 {
        exchange(server, clients, NOW);
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Command { handle, .. } = event {
                server.reply(handle, Reply::good(Some(vec![2; 50_000].into())), NOW);
            }
        }
    }
    let is_good = |event: ClientEvent| {
        matches!(
            event,
            ClientEvent::Completed { answer: Answer::Command { status: Status::Good, .. }, data_in_bytes: 50_000, .. }
        )
    };
    clients.iter_mut().all(|client| std::iter::from_fn(|| client.poll_event()).any(is_good))
}

#[test]
fn a_client_that_asks_for_impossible_windows_is_counted_and_gets_no_others() {
    let (mut server, mut clients) = (server(), [client(1), client(2)]);
    exchange(&mut server, &mut clients, NOW);
    let share = Window::fitting(512).in_flight_packets();
    for (count, window) in (1..).zip(IMPOSSIBLE) {
        clients[1].say(Opcode::AckSnr, set_windows(window));
        exchange(&mut server, &mut clients, NOW);
        assert_eq!(server.counters().violations, count, "{window:?}");
        assert!(in_flight(&server).iter().all(|(_, inward)| *inward == share), "{window:?}");
    }
    assert!(are_served(&mut server, &mut clients));
}

#[test]
fn a_client_that_asks_for_more_than_its_share_does_not_get_it() {
    let (mut server, mut clients) = (server(), [client(1), client(2)]);
    exchange(&mut server, &mut clients, NOW);
    let before = in_flight(&server);
    for window in LARGE {
        clients[1].say(Opcode::AckSnr, set_windows(window));
        exchange(&mut server, &mut clients, NOW);
        let now = in_flight(&server);
        let is_within = |(now, before): (&(u32, u32), &(u32, u32))| now.0 <= before.0 && now.1 <= before.1;
        assert!(now.iter().zip(&before).all(is_within), "{window:?}: {now:?}, {before:?} before");
        assert!(now.contains(&before[0]), "the other one keeps its own: {now:?}");
    }
    assert!(are_served(&mut server, &mut clients));
}

#[test]
fn a_client_counts_and_outlives_a_server_that_sets_impossible_or_very_large_windows() {
    let (mut server, mut clients) = (server(), [client(1)]);
    exchange(&mut server, &mut clients, NOW);
    let say = |server: &mut Server, window| {
        let id = *server.connections.keys().next().unwrap();
        server.connections.get_mut(&id).unwrap().channel.send_control(Opcode::AckSnr, set_windows(window));
        server.touch(id);
    };
    for (count, window) in (1..).zip(IMPOSSIBLE) {
        say(&mut server, window);
        exchange(&mut server, &mut clients, NOW);
        assert_eq!(clients[0].counters().violations, count, "{window:?}");
    }
    for window in LARGE {
        say(&mut server, window);
        exchange(&mut server, &mut clients, NOW);
    }
    assert!(in_flight(&server).iter().all(|(outward, _)| *outward <= IN_FLIGHT_MAX_PACKETS));
    assert!(are_served(&mut server, &mut clients));
}

/// The packets that the server has to send now.
fn sent(server: &mut Server) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| server.poll_transmit(NOW)).map(|(_, packet)| bytes(&packet)).collect()
}

#[test]
fn of_two_changes_of_windows_each_has_its_own_answer_and_a_late_one_changes_nothing() {
    let (mut server, mut clients) = (server(), [client(1)]);
    exchange(&mut server, &mut clients, NOW);
    let [client] = &mut clients;
    let before = in_flight(&server);
    let ask = |server: &mut Server, packets: u32| {
        let window = Window::fitting(packets);
        let id = *server.connections.keys().next().unwrap();
        let windows = Windows { outward: window, inward: window };
        server.connections.get_mut(&id).unwrap().share(windows, 1, NOW);
        server.touch(id);
        sent(server)
    };
    let (first, second) = (ask(&mut server, 16), ask(&mut server, 64));
    let hear = |client: &mut Client, packets: &[Vec<u8>]| -> Vec<Vec<u8>> {
        packets.iter().for_each(|packet| client.handle_input(path(1), packet, NOW));
        std::iter::from_fn(|| client.poll_transmit(NOW)).map(|(_, packet)| bytes(&packet)).collect()
    };
    for answer in hear(client, &first) {
        server.handle_input(path(100), &answer, NOW);
    }
    assert_eq!(in_flight(&server), before, "the second is not answered");
    for answer in hear(client, &second) {
        server.handle_input(path(100), &answer, NOW);
    }
    assert_eq!(in_flight(&server), [(64, 64)]);
    let (third, fourth) = (ask(&mut server, 32), ask(&mut server, 128));
    for answer in hear(client, &fourth) {
        server.handle_input(path(100), &answer, NOW);
    }
    assert!(hear(client, &third).is_empty(), "it is late");
    assert_eq!(in_flight(&server), [(128, 128)]);
    assert!(are_served(&mut server, &mut clients));
}

/// The windows of the others are whole packets of a part that hardly changes.
#[test]
fn who_comes_or_goes_among_many_is_looked_at_and_few_others() {
    let (mut server, mut clients, mut now) = (server(), Vec::new(), NOW);
    let mut visits = Vec::new();
    for number in 0..200 {
        clients.push(client(number));
        exchange(&mut server, &mut clients, now);
        now += 20 * MS;
        visits.push(server.sharing.visits);
    }
    assert_eq!(server.connections(), 200);
    let (late, all) = (visits[199] - visits[119], visits[199]);
    assert!(late <= 10 * 80, "{late} connections were looked at for the last 80, {all} for all");
    for number in 100..200 {
        server.drop_client(super::id(number), now);
    }
    let gone = server.sharing.visits - all;
    assert!(gone <= 10 * 100, "{gone} connections were looked at as 100 went");
    exchange(&mut server, &mut clients, now);
    let shares = in_flight(&server);
    assert!(shares.len() == 100 && shares.iter().all(|share| *share == (1024, 10)), "{shares:?}");
}

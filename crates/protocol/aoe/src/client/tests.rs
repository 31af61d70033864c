use std::time::Duration;

use sanwire_ata::{Abilities, Host, IdentifyDevice, Registers, Trim, error};
use sanwire_buffer::{Frame, Slice};
use sanwire_core::{Instant, LinkId, MacAddress, Path, Peer};
use sanwire_scsi::{Extent, Status, build, unmap_parameters};

use super::*;
use crate::wire::{Address, AtaHeader, Config, ConfigOrder, Header, command};

const ADDRESS: Address = Address { shelf: 7, slot: 3 };
const PATH: Path = Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, 1])) };

fn disk(run: Option<u64>) -> IdentifyDevice {
    IdentifyDevice {
        serial: "1".into(),
        firmware: "1".into(),
        model: "a disk".into(),
        sectors: 1000,
        sector_bytes: 512,
        physical_sector_exponent: 0,
        rotation_rate: 1,
        world_wide_name: None,
        multiple: 0,
        dma_mode: None,
        abilities: Abilities {
            has_48_bit_addresses: true,
            has_flush: true,
            has_flush_ext: true,
            write_cache: Some(true),
            ..Abilities::default()
        },
        trim: None,
        run,
    }
}

/// A client, and a target that does what the test says.
struct World {
    client: Client,
    now: Instant,
}

impl World {
    /// With a disk in this run of its target.
    fn connected(run: Option<u64>) -> World {
        World::with(&disk(run))
    }

    fn with(disk: &IdentifyDevice) -> World {
        World::told(disk, (8, 17))
    }

    /// With a target that says so of its buffers, and of the sectors of one command.
    fn told(disk: &IdentifyDevice, takes: (u16, u8)) -> World {
        let config = ClientConfig {
            address: ADDRESS,
            links: vec![(LinkId(0), 9000)],
            connect_patience: Duration::from_secs(60),
            reconnect_patience: None,
            first_tag: 1,
        };
        let now = Instant::ZERO;
        let mut world = World { client: Client::new(config, now), now };
        world.client.handle_timeout(now);
        world.find(takes);
        world.identify(&disk.to_bytes());
        assert!(matches!(world.client.poll_event(), Some(ClientEvent::Connected(_))));
        world
    }

    /// The next message of the client.
    fn sent(&mut self) -> (Header, Vec<u8>) {
        let (_, packet) = self.client.poll_transmit(self.now).expect("a message");
        let (header, argument) = Header::parse(&packet.head).expect("one of AoE");
        (header, argument.to_vec())
    }

    /// The next ATA command of the client, whenever that is.
    fn sent_ata(&mut self) -> (Header, Vec<u8>) {
        loop {
            while let Some((_, packet)) = self.client.poll_transmit(self.now) {
                let (header, argument) = Header::parse(&packet.head).expect("one of AoE");
                if header.command == command::ATA {
                    return (header, argument.to_vec());
                }
            }
            self.now = self.client.poll_timeout().expect("something is due").max(self.now);
            self.client.handle_timeout(self.now);
        }
    }

    fn answer(&mut self, header: &Header, argument: &[u8]) {
        let bytes = [&header.response(ADDRESS).to_bytes(), argument].concat();
        self.client.handle_input(PATH, &bytes, self.now);
    }

    /// Answers a question where the target is.
    fn find(&mut self, (buffers, sectors): (u16, u8)) {
        let (header, _) = self.sent();
        let query = Config::query(ConfigOrder::Read, &[]);
        self.answer(&header, &query.answer(buffers, 1, sectors, &[]).to_bytes());
    }

    /// Answers the next command, which has to be this.
    fn end(&mut self, code: u8, error: u8, data: &[u8]) {
        let (header, argument) = self.sent();
        let (ata, _) = AtaHeader::parse(&argument).expect("a command");
        assert_eq!((header.command, ata.command), (command::ATA, code));
        let task_file = ata.task_file();
        let registers = match error {
            0 => Registers::success(&task_file),
            error => Registers::failure(&task_file, error),
        };
        self.answer(&header, &[&ata.response(&registers).to_bytes()[..], data].concat());
    }

    fn identify(&mut self, data: &[u8]) {
        self.end(Host::identify().command, 0, data);
    }

    fn flush(&mut self) -> u64 {
        let cdb = build::synchronize_cache_16(Extent { lba: 0, blocks: 0 });
        self.client.order(Order { cdb, data_out: None, data_in: None }).expect("room")
    }

    fn completed(&mut self) -> Option<(u64, Status)> {
        match self.client.poll_event() {
            Some(ClientEvent::Completed { number, status, .. }) => Some((number, status)),
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }
}

const FLUSH_EXT: u8 = 0xea;

#[test]
fn a_flush_counts_when_the_target_is_seen_to_be_in_its_run_after_it() {
    let mut world = World::connected(Some(9));
    let order = world.flush();
    world.end(FLUSH_EXT, 0, &[]);
    assert_eq!(world.completed(), None);
    world.identify(&IdentifyDevice { multiple: 16, sectors: 2000, ..disk(Some(9)) }.to_bytes());
    assert_eq!(world.completed(), Some((order, Status::Good)), "settings and size are no other disk");
    world.flush();
    world.end(FLUSH_EXT, 0, &[]);
    world.identify(&disk(Some(10)).to_bytes());
    assert!(matches!(world.client.poll_event(), Some(ClientEvent::Lost)));
}

#[test]
fn a_target_that_tells_no_run_and_a_flush_that_fails_are_believed() {
    let mut world = World::connected(None);
    let order = world.flush();
    world.end(FLUSH_EXT, 0, &[]);
    assert_eq!(world.completed(), Some((order, Status::Good)));
    let mut world = World::connected(Some(9));
    let order = world.flush();
    world.end(FLUSH_EXT, error::ABRT, &[]);
    assert_eq!(world.completed(), Some((order, Status::CheckCondition)));
}

/// The flush would wait for ever.
#[test]
fn a_target_that_is_no_disk_any_more_is_sought_anew() {
    let mut damaged = disk(Some(9)).to_bytes();
    damaged[100] ^= 1;
    let with_large_sectors = IdentifyDevice { sector_bytes: 4096, ..disk(Some(9)) }.to_bytes();
    for data in [damaged, with_large_sectors] {
        let mut world = World::connected(Some(9));
        world.flush();
        world.end(FLUSH_EXT, 0, &[]);
        world.identify(&data);
        assert!(matches!(world.client.poll_event(), Some(ClientEvent::Lost)));
    }
}

#[test]
fn questions_are_repeated_under_their_tag_and_flushes_under_theirs() {
    let mut world = World::connected(Some(9));
    world.flush();
    let (first, _) = world.sent_ata();
    let (copy, _) = world.sent_ata();
    assert_eq!(first.tag, copy.tag, "a failure is told once, so a copy must be known for one");
    let (ata, _) = AtaHeader::parse(&[0x40, 0, 0, FLUSH_EXT, 0, 0, 0, 0, 0, 0, 0, 0]).expect("a command");
    world.answer(&first, &ata.response(&Registers::success(&ata.task_file())).to_bytes());
    let (question, _) = world.sent_ata();
    let (again, argument) = world.sent_ata();
    assert_eq!(question.tag, again.tag, "the answer may take longer than that");
    let (ata, _) = AtaHeader::parse(&argument).expect("a command");
    let answer = ata.response(&Registers::success(&ata.task_file())).to_bytes();
    world.answer(&question, &[&answer[..], &disk(Some(9)).to_bytes()].concat());
    assert!(world.completed().is_some());
}

#[test]
fn smaller_frames_are_taken_over() {
    let mut world = World::connected(Some(9));
    let announced = Header::request(ADDRESS, command::CONFIG, 0);
    let query = Config::query(ConfigOrder::Read, &[]);
    world.answer(&announced, &query.answer(8, 1, 2, &[]).to_bytes());
    assert_eq!(world.client.place().map(|place| place.sectors), Some(2));
    world.identify(&disk(Some(9)).to_bytes());
    assert_eq!(world.completed(), None, "it is not lost for that");
}

/// What is too large for the link is never sent, and the target hears of nothing.
#[test]
fn frames_are_as_large_as_our_link_has_become() {
    let mut world = World::connected(Some(9));
    let cdb = build::read_16(Extent { lba: 5, blocks: 4 });
    let number = world.client.order(Order { cdb, data_out: None, data_in: Frame::zeroed(2048) }).expect("room");
    let count = |world: &mut World| {
        let (header, argument) = world.sent_ata();
        let (ata, _) = AtaHeader::parse(&argument).expect("a command");
        (header, ata)
    };
    assert_eq!(count(&mut world).1.count, 4);
    world.client.set_link(LinkId(0), 1500);
    for _ in 0..2 {
        let (header, ata) = count(&mut world);
        assert_eq!(ata.count, 2);
        let answer = ata.response(&Registers::success(&ata.task_file()));
        world.answer(&header, &[&answer.to_bytes()[..], &[7; 1024]].concat());
    }
    assert_eq!(world.completed(), Some((number, Status::Good)));
    world.client.set_link(LinkId(0), 9000);
    assert_eq!(world.client.place().map(|place| place.sectors), Some(16), "as much as the target takes");
}

/// None of either says nothing, and the most is more than this end has under way.
#[test]
fn what_a_target_says_that_it_takes_has_limits() {
    for (takes, commands, sectors) in
        [((0, 0), 1, 2), ((0, 255), 1, 16), ((u16::MAX, 0), 256, 2), ((u16::MAX, 255), 256, 16)]
    {
        let mut world = World::told(&disk(Some(9)), takes);
        let cdb = build::read_16(Extent { lba: 0, blocks: 1000 });
        let data_in = Frame::zeroed(1000 * 512);
        let number = world.client.order(Order { cdb, data_out: None, data_in }).expect("room");
        let mut most = 0;
        loop {
            let sent: Vec<_> = std::iter::from_fn(|| world.client.poll_transmit(world.now)).collect();
            most = most.max(sent.len());
            if sent.is_empty() {
                break;
            }
            for (_, packet) in sent {
                let (header, argument) = Header::parse(&packet.head).expect("one of AoE");
                let (ata, _) = AtaHeader::parse(argument).expect("a command");
                assert!(ata.count <= sectors, "{} sectors: {takes:?}", ata.count);
                let answer = ata.response(&Registers::success(&ata.task_file()));
                let data = vec![7; usize::from(ata.count) * 512];
                world.answer(&header, &[&answer.to_bytes()[..], &data].concat());
            }
        }
        assert!((1..=commands).contains(&most), "{most} commands were under way: {takes:?}");
        assert_eq!(world.completed(), Some((number, Status::Good)), "{takes:?}");
    }
}

/// Up to the payload of a frame of 9,018 bytes.
#[test]
fn messages_of_every_length_are_dropped_or_count_as_far_as_they_go() {
    let mut world = World::connected(Some(9));
    let cdb = build::read_16(Extent { lba: 5, blocks: 2 });
    let number = world.client.order(Order { cdb, data_out: None, data_in: Frame::zeroed(1024) }).expect("room");
    let (header, argument) = world.sent_ata();
    let (ata, _) = AtaHeader::parse(&argument).expect("a command");
    let answer = ata.response(&Registers::success(&ata.task_file()));
    let mut whole = [&header.response(ADDRESS).to_bytes()[..], &answer.to_bytes(), &[7; 1024]].concat();
    let of_nobody = Header { tag: header.tag ^ 0x40, ..header.response(ADDRESS) };
    let place = Header { command: command::CONFIG, ..of_nobody };
    let query = Config::query(ConfigOrder::Read, &[]);
    let place = [&place.to_bytes()[..], &query.answer(8, 1, 17, &[]).to_bytes()].concat();
    for length in 0..=9_004 {
        for begin in [&[0; 0][..], &of_nobody.to_bytes(), &place] {
            let mut message = begin.to_vec();
            message.resize(length, 0);
            world.client.handle_input(PATH, &message, world.now);
        }
        assert!(world.client.poll_transmit(world.now).is_none(), "{length} bytes");
    }
    (0..22).for_each(|length| world.client.handle_input(PATH, &whole[..length], world.now));
    assert_eq!(world.completed(), None);
    whole.resize(9_004, 0);
    world.client.handle_input(PATH, &whole, world.now);
    assert_eq!(world.completed(), Some((number, Status::Good)), "what is behind the data is ignored");
}

/// Another station is at the same address.
#[test]
fn of_two_targets_the_first_is_used_and_nothing_goes_to_the_other_unseen() {
    const OTHER: Path = Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, 2])) };
    let mut world = World::connected(Some(9));
    world.client.hold_after_restart();
    let query = Config::query(ConfigOrder::Read, &[]);
    let says = |tag: u32| {
        let header = Header::request(ADDRESS, command::CONFIG, tag).response(ADDRESS);
        [&header.to_bytes()[..], &query.answer(8, 1, 2, &[]).to_bytes()].concat()
    };
    // Unasked, and when it has heard the question.
    for tag in [0, 0x8000_0001] {
        world.client.handle_input(OTHER, &says(tag), world.now);
    }
    assert_eq!(world.client.place().map(|place| (place.path, place.sectors)), Some((PATH, 16)));
    assert!(world.client.poll_transmit(world.now).is_none());
    // The first one is lost with a command under way.
    let cdb = build::read_16(Extent { lba: 5, blocks: 1 });
    let number = world.client.order(Order { cdb, data_out: None, data_in: Frame::zeroed(512) }).expect("room");
    loop {
        while let Some((to, _)) = world.client.poll_transmit(world.now) {
            assert_eq!(to, PATH);
        }
        match world.client.poll_event() {
            Some(ClientEvent::Lost) => break,
            Some(other) => panic!("{other:?}"),
            None => world.now = world.client.poll_timeout().expect("something is due").max(world.now),
        }
        world.client.handle_timeout(world.now);
    }
    world.client.handle_timeout(world.now);
    let (question, _) = world.sent();
    world.client.handle_input(OTHER, &says(question.tag), world.now);
    let (to, packet) = world.client.poll_transmit(world.now).expect("it is asked what it is");
    let (header, argument) = Header::parse(&packet.head).expect("one of AoE");
    let (ata, _) = AtaHeader::parse(argument).expect("a command");
    assert_eq!((to, ata.command), (OTHER, Host::identify().command));
    let answer = ata.response(&Registers::success(&ata.task_file())).to_bytes();
    let is = IdentifyDevice { serial: "2".into(), ..disk(Some(9)) }.to_bytes();
    let bytes = [&header.response(ADDRESS).to_bytes()[..], &answer, &is].concat();
    world.client.handle_input(OTHER, &bytes, world.now);
    assert!(matches!(world.client.poll_event(), Some(ClientEvent::Connected(place)) if place.path == OTHER));
    // Whether it is the same disk the layer above sees first.
    assert!(world.client.poll_transmit(world.now).is_none());
    world.client.abandon();
    let failed = world.client.poll_event();
    assert!(matches!(failed, Some(ClientEvent::Failed { number: of, .. }) if of == number), "{failed:?}");
}

/// Without a limit it would be asked again endlessly.
#[test]
fn a_read_that_is_answered_with_less_again_and_again_has_failed() {
    let mut world = World::connected(Some(9));
    let cdb = build::read_16(Extent { lba: 5, blocks: 2 });
    let number = world.client.order(Order { cdb, data_out: None, data_in: Frame::zeroed(1024) }).expect("room");
    for copy in 1..=8 {
        assert_eq!(world.completed(), None, "copy {copy}");
        let (header, argument) = world.sent_ata();
        let (ata, _) = AtaHeader::parse(&argument).expect("a command");
        let answer = ata.response(&Registers::success(&ata.task_file()));
        let short = [&answer.to_bytes()[..], &[7; 1023]].concat();
        // A frame that the Ethernet has doubled is no other copy.
        (0..2).for_each(|_| world.answer(&header, &short));
    }
    assert_eq!(world.completed(), Some((number, Status::CheckCondition)));
    while let Some(at) = world.client.poll_timeout() {
        world.client.handle_timeout(at);
        assert!(world.client.poll_transmit(at).is_none(), "nothing is asked any more");
    }
}

#[test]
fn a_trim_has_no_more_blocks_of_ranges_than_the_disk_takes() {
    // One that has to be cut into several ranges, behind others: more than a block of them.
    let ranges: Vec<Extent> =
        (0..64).map(|at| Extent { lba: 10 * at, blocks: if at == 63 { 0x2f_ffff } else { 1 } }).collect();
    let list = unmap_parameters(&ranges).expect("a list");
    for (said, expected) in [(0, vec![1, 1]), (1, vec![1, 1]), (8, vec![2])] {
        let trim = Some(Trim { blocks_max: said, reads_zeroes: true });
        let mut world = World::with(&IdentifyDevice { trim, sectors: 1 << 24, ..disk(Some(9)) });
        let (cdb, data_out) = (build::unmap(list.len() as u16), Some(Slice::from(list.clone())));
        let number = world.client.order(Order { cdb, data_out, data_in: None }).expect("room");
        for blocks in expected {
            let (header, argument) = world.sent_ata();
            let (ata, _) = AtaHeader::parse(&argument).expect("a command");
            assert_eq!((ata.command, ata.count), (0x06, blocks), "the disk says {said}");
            world.answer(&header, &ata.response(&Registers::success(&ata.task_file())).to_bytes());
        }
        assert_eq!(world.completed(), Some((number, Status::Good)));
    }
}

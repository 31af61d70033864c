//! An AoE target and stations that keep no rule: no panic, no more under way than is announced, answers of whole frames, no endless
//! sending.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_aoe::{Address, Shelves, Target, TargetConfig, TargetEvent};
use sanwire_buffer::{Region, Slices};
use sanwire_core::{Instant, LinkId, Lun, MacAddress, NexusId, Path, Peer};
use sanwire_scsi::{Reply, Status};

const BUFFERS: u16 = 4;

struct World {
    target: Target,
    now: Instant,
    waiting: Vec<(NexusId, u64, u32)>,
}

impl World {
    fn drain(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Command { nexus, number, task } => {
                    self.waiting.push((nexus, number, task.data_in_max_bytes));
                }
                TargetEvent::Closed { nexus } => self.waiting.retain(|(of, ..)| *of != nexus),
                _ => {}
            }
        }
        assert!(self.target.stations().all(|(_, commands)| commands <= usize::from(BUFFERS)));
        let mut packets = 0;
        while let Some((_, packet)) = self.target.poll_transmit() {
            packets += 1;
            assert!((46..=9000).contains(&packet.length_bytes()), "{} bytes", packet.length_bytes());
            assert!(packets < 10_000, "it never stops sending");
        }
    }
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let shelves = Arc::new(Shelves::default());
    (0..3).for_each(|slot| shelves.put(Address { shelf: 7, slot }, Lun::new(slot.into()).unwrap_or_default()));
    let target = Target::new(TargetConfig {
        shelves,
        admission: Box::new(|station| station.0[5] != 3),
        memory: Region::new(1 << 20).expect("memory"),
        links: vec![1500, 9000],
        buffers: BUFFERS,
        nexuses: (1, 1),
        run: 9,
        announces: true,
    });
    let mut world = World { target, now: Instant::ZERO, waiting: Vec::new() };
    while !u.is_empty() {
        match u.int_in_range(0..=9)? {
            0..=5 => {
                let peer = Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, u.int_in_range(1..=4)?]));
                let path = Path { link: LinkId(u.int_in_range(0..=2)?), peer };
                let mut bytes: Vec<u8> = u.arbitrary()?;
                // Most would be thrown away at once.
                if bytes.len() > 5 && u.ratio(7, 8)? {
                    bytes[..5].copy_from_slice(&[0x10, 0, 0, 7, u.int_in_range(0..=3)?]);
                    bytes[5] &= 0x03;
                    bytes.resize(bytes.len().max(u.int_in_range(0..=9000)?), 0);
                }
                world.target.handle_input(path, &bytes, world.now);
            }
            6 | 7 if !world.waiting.is_empty() => {
                let (nexus, number, room_bytes) = world.waiting.swap_remove(u.choose_index(world.waiting.len())?);
                let data = u.arbitrary::<Vec<u8>>()?.into_iter().chain(std::iter::repeat(0)).take(room_bytes as usize);
                let reply = if u.ratio(1, 4)? {
                    let status = Status::from_code(u.arbitrary()?).unwrap_or(Status::CheckCondition);
                    Reply { sense: u.arbitrary()?, ..Reply::bare(status) }
                } else {
                    Reply::good(Some(Slices::from(data.collect::<Vec<u8>>())))
                };
                world.target.reply(nexus, number, Some(reply), world.now);
            }
            8 => world.target.look_after(),
            _ => {
                world.now += Duration::from_millis(u.int_in_range(0..=700_000)?);
                world.target.handle_timeout(world.now);
            }
        }
        world.drain();
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    // It may run out of input.
    let _ = run(&mut Unstructured::new(bytes));
});

//! A client of NBD and a server that keeps no rule: no panic, every order ends exactly once, every frame comes back, no endless
//! sending.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::Region;
use sanwire_core::Instant;
use sanwire_nbd::wire::{
    BASE_ALLOCATION, MAGIC_INIT, MAGIC_OPTION, MAGIC_OPTION_REPLY, OPT_GO, OPT_SET_META_CONTEXT, OPT_STRUCTURED_REPLY,
    REP_ACK, REP_INFO, REP_META_CONTEXT, REQUEST_BYTES, RawRequest,
};
use sanwire_nbd::{Action, Client, Config, ConnectionId, Event, Order};

/// What the callers' frames are made of.
const MEMORY_BYTES: usize = 1 << 20;
const MAGICS: [u32; 3] = [0x6744_6698, 0x668e_33ef, 0x2560_9513];

struct World {
    client: Client,
    now: Instant,
    memory: Region,
    waiting: BTreeSet<u64>,
    open: Vec<ConnectionId>,
    /// Requests that the client has sent: their cookies are worth repeating.
    sent: Vec<RawRequest>,
}

impl World {
    fn drain(&mut self) {
        loop {
            while let Some(event) = self.client.poll_event() {
                if let Event::Completed { id, .. } = event {
                    assert!(self.waiting.remove(&id.0), "{id:?} ends twice");
                }
            }
            let Some(action) = self.client.poll_action() else { break };
            match action {
                Action::Connect(id) => {
                    self.open.push(id);
                    self.client.connected(id);
                }
                Action::Close(id) => self.open.retain(|known| *known != id),
            }
        }
        for id in self.client.connections().collect::<Vec<_>>() {
            let mut packets = 0;
            while let Some(packet) = self.client.poll_transmit(id) {
                packets += 1;
                assert!(packets < 10_000, "the client never stops sending");
                self.sent.extend(packet.head.first_chunk::<REQUEST_BYTES>().and_then(RawRequest::parse));
            }
        }
        let surplus = self.sent.len().saturating_sub(32);
        self.sent.drain(..surplus);
    }

    fn bytes(&mut self, connection: ConnectionId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut taken = 0;
            for space in self.client.spaces(connection) {
                let count = space.len().min(bytes.len() - taken);
                space[..count].copy_from_slice(&bytes[taken..taken + count]);
                taken += count;
            }
            if taken == 0 {
                return;
            }
            self.client.filled(connection, taken, self.now);
            bytes = &bytes[taken..];
        }
        self.drain();
    }

    fn negotiate(&mut self, u: &mut Unstructured<'_>, connection: ConnectionId) -> Result<()> {
        let mut bytes = MAGIC_INIT.to_be_bytes().to_vec();
        bytes.extend(MAGIC_OPTION.to_be_bytes());
        bytes.extend(3u16.to_be_bytes());
        let mut reply = |option: u32, kind: u32, data: &[u8]| {
            bytes.extend(MAGIC_OPTION_REPLY.to_be_bytes());
            [option, kind, data.len() as u32].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
            bytes.extend(data);
        };
        if u.ratio(3, 4)? {
            reply(OPT_STRUCTURED_REPLY, REP_ACK, &[]);
            reply(OPT_SET_META_CONTEXT, REP_META_CONTEXT, &[&[0, 0, 0, 1], BASE_ALLOCATION].concat());
            reply(OPT_SET_META_CONTEXT, REP_ACK, &[]);
        } else {
            reply(OPT_STRUCTURED_REPLY, 0x8000_0001, &[]);
        }
        let flags: u16 = u.arbitrary()?;
        reply(OPT_GO, REP_INFO, &[&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0][..], &flags.to_be_bytes()].concat());
        let sizes = [1u32, 512, if u.arbitrary()? { 2048 } else { 1 << 20 }].map(u32::to_be_bytes);
        reply(OPT_GO, REP_INFO, &[&[0, 3][..], sizes.as_flattened()].concat());
        reply(OPT_GO, REP_ACK, &[]);
        if u.ratio(1, 8)? {
            let at = u.int_in_range(0..=bytes.len() - 1)?;
            bytes[at] = u.arbitrary()?;
        }
        self.bytes(connection, &bytes);
        Ok(())
    }

    /// An answer whose fields mean something, mostly.
    fn answer(&mut self, u: &mut Unstructured<'_>, connection: ConnectionId) -> Result<()> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let RawRequest { cookie, offset_bytes, length_bytes, .. } = *u.choose(&self.sent)?;
        let magic = *u.choose(&MAGICS)?;
        let mut bytes = magic.to_be_bytes().to_vec();
        if magic == MAGICS[0] {
            bytes.extend(if u.arbitrary()? { 0u32 } else { 5 }.to_be_bytes());
            bytes.extend(cookie.to_be_bytes());
            if u.arbitrary()? {
                bytes.resize(16 + length_bytes as usize, 3);
            }
        } else {
            bytes.extend(u16::from(u.arbitrary::<bool>()?).to_be_bytes());
            let kind = *u.choose(&[0u16, 1, 1, 2, 5, 0x8001, 0x8002, 0x8077])?;
            bytes.extend(kind.to_be_bytes());
            bytes.extend(cookie.to_be_bytes());
            let skip = u64::from(u.arbitrary::<u16>()?) % u64::from(length_bytes.max(1));
            let (at, rest) =
                (offset_bytes + if u.arbitrary()? { skip } else { 0 }, length_bytes.saturating_sub(skip as u32));
            let mut body = match kind {
                0 => Vec::new(),
                5 => [1u32, rest, 3].map(u32::to_be_bytes).concat(),
                0x8000.. => [&[0, 0, 0, 5, 0, 2, b'n', b'o'][..], if kind == 0x8002 { &[0; 8] } else { &[] }].concat(),
                _ => at.to_be_bytes().to_vec(),
            };
            match kind {
                1 => body.resize(8 + rest as usize, 4),
                2 => body.extend(rest.to_be_bytes()),
                _ => {}
            }
            bytes.extend((body.len() as u32).to_be_bytes());
            bytes.extend(body);
        }
        self.bytes(connection, &bytes);
        Ok(())
    }

    fn order(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let offset_bytes = u64::from(u.arbitrary::<u8>()?) * 512;
        let length = 512 * (1 + usize::from(u.arbitrary::<u8>()? % 16));
        let length_bytes = length as u64;
        let order = match u.int_in_range(0..=5u8)? {
            0 => Order::Flush,
            1 => Order::Zero { offset_bytes, length_bytes, keeps_space: u.arbitrary()? },
            2 => Order::Extent { offset_bytes, length_bytes },
            3 => Order::Write { offset_bytes, data: vec![7; length].into() },
            _ => match self.memory.frame(length) {
                Some(frame) => Order::Read { offset_bytes, frame },
                None => return Ok(()),
            },
        };
        let id = self.client.order(order, self.now);
        assert!(self.waiting.insert(id.0));
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let connection = if self.open.is_empty() { ConnectionId(0) } else { *u.choose(&self.open)? };
        match u.int_in_range(0..=15u8)? {
            0 => {
                let length = u.int_in_range(0..=100usize)?;
                let bytes = u.bytes(length.min(u.len()))?;
                self.bytes(connection, bytes);
            }
            1 => {
                self.now += Duration::from_micros(100 << u.int_in_range(0..=16u32)?);
                self.client.handle_timeout(self.now);
            }
            2 => {
                self.open.retain(|known| *known != connection);
                self.client.lost(connection, "cut", self.now);
            }
            3..=6 => self.order(u)?,
            7..=8 => self.negotiate(u, connection)?,
            _ => self.answer(u, connection)?,
        }
        self.drain();
        Ok(())
    }

    /// The server is gone for good.
    fn end(&mut self) {
        for _ in 0..1000 {
            self.drain();
            while let Some(id) = self.open.pop() {
                self.client.lost(id, "gone", self.now);
            }
            if self.waiting.is_empty() {
                break;
            }
            let Some(at) = self.client.poll_timeout() else { break };
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
        }
        self.drain();
        assert!(self.waiting.is_empty(), "never ended: {:?}", self.waiting);
        assert_eq!(self.memory.free_bytes(), self.memory.length_bytes(), "a frame is lost");
    }
}

fuzz_target!(|input: &[u8]| {
    let config = Config {
        export: "disk".to_owned(),
        connections: 2,
        connect_timeout: Duration::from_secs(5),
        patience: Duration::from_secs(10),
        linger: Duration::from_secs(1),
        kept_max_bytes: 1 << 15,
    };
    let mut world = World {
        client: Client::new(config, Instant::ZERO),
        now: Instant::ZERO,
        memory: Region::new(MEMORY_BYTES).expect("memory"),
        waiting: BTreeSet::new(),
        open: Vec::new(),
        sent: Vec::new(),
    };
    world.drain();
    let mut u = Unstructured::new(input);
    for _ in 0..300 {
        if u.is_empty() || world.step(&mut u).is_err() {
            break;
        }
    }
    world.end();
});

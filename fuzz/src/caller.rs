//! A client of iSCSI, whatever carries it, and who gives it commands: every one ends exactly once, and every frame comes back.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sanwire_buffer::{Region, Slice};
use sanwire_core::{Instant, Lun};
use sanwire_iscsi::wire::{HEADER_BYTES, Header, LoginRequest, LoginResponse};
use sanwire_iscsi::{
    Client, ClientAction, ClientConfig, ClientEvent, ConnectionId, DesiredParameters, Failure, Isid, MakeDatamover,
    Order,
};
use sanwire_scsi::Cdb;

use crate::steps::CANARY;

/// What the callers' frames are made of.
const MEMORY_BYTES: usize = 1 << 20;

/// Longer than all times that the client takes together before it fails what was asked.
const SILENCE: Duration = Duration::from_secs(120);

/// A client, and what was asked of it.
pub struct Caller {
    /// The client.
    pub client: Client,
    /// The time.
    pub now: Instant,
    /// Connections that are to be opened.
    pub opening: Vec<ConnectionId>,
    memory: Region,
    waiting: BTreeSet<u64>,
    given_up: bool,
    /// The target is away for too long: no command is taken before it is back.
    is_away: bool,
    /// What a target does not write is not to be given to a caller.
    is_marked: bool,
}

/// A client, and what is around it.
pub trait Surroundings {
    /// The client.
    fn caller(&mut self) -> &mut Caller;

    /// Takes all that the client has to say.
    fn drain(&mut self);

    /// Nothing comes from the target until then.
    fn pass_time(&mut self, until: Instant) {
        self.drain();
        for _ in 0..1000 {
            let caller = self.caller();
            let Some(at) = caller.client.poll_timeout().filter(|at| *at <= until) else { break };
            caller.now = caller.now.max(at);
            caller.client.handle_timeout(caller.now);
            self.drain();
        }
    }

    /// The target falls silent, or the client leaves: either ends all that was asked. A silent target is sought until the client leaves.
    fn end(&mut self, leaves: bool) {
        if !leaves {
            let until = self.caller().now + SILENCE;
            self.pass_time(until);
            self.caller().assert_ended();
        }
        let caller = self.caller();
        caller.client.disconnect(caller.now);
        let until = caller.now + SILENCE;
        self.pass_time(until);
        let caller = self.caller();
        assert!(caller.client.poll_timeout().is_none(), "it never ends");
        caller.assert_ended();
        assert_eq!(caller.memory.free_bytes(), caller.memory.length_bytes(), "a frame is lost");
        assert_eq!(caller.client.in_transit(), 0);
    }
}

impl Caller {
    /// A client over these datamovers; over plain TCP if there are none.
    pub fn new(u: &mut Unstructured<'_>, over: Option<MakeDatamover>) -> Result<Self> {
        let wishes = DesiredParameters {
            digests: false,
            error_recovery_level: u.int_in_range(0..=2)?,
            connections: u.int_in_range(1..=3)?,
        };
        let name = |name: &str| name.parse().expect("a name");
        let config = ClientConfig {
            initiator: name("iqn.2026-11.org.sanwire:fuzz"),
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            target: if u.ratio(7, 8)? { Some(name("iqn.2026-11.org.sanwire:disk")) } else { None },
            portals: (1..=2).map(|host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 3260))).collect(),
            credential: None,
            target_credential: None,
            wishes,
            commands_max: 8,
            connect_patience: Duration::from_secs(10),
            reconnect_patience: Some(Duration::from_secs(10)),
            command_patience: Some(Duration::from_secs(10)),
            seed: [3; 32],
        };
        let client = match over {
            Some(make) => Client::over(make, config, Instant::ZERO),
            None => Client::new(config, Instant::ZERO),
        };
        Ok(Caller {
            client,
            now: Instant::ZERO,
            opening: Vec::new(),
            memory: Region::new(MEMORY_BYTES).expect("memory"),
            waiting: BTreeSet::new(),
            given_up: false,
            is_away: false,
            is_marked: false,
        })
    }

    /// From now on the target writes no byte that is [`CANARY`]: what a caller is given it has written.
    pub fn mark(&mut self) {
        self.is_marked = true;
    }

    /// Takes what the client tells. Gives the connections that it closes.
    pub fn note(&mut self) -> Vec<ConnectionId> {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Completed { id, data_in, data_in_bytes, .. } => {
                    assert!(self.waiting.remove(&id.number()), "{id:?} ends twice");
                    assert!(data_in_bytes <= data_in.as_ref().map_or(0, |frame| frame.len()));
                    let given = data_in.as_ref().filter(|_| self.is_marked).map_or(&[][..], |frame| &frame[..]);
                    assert!(!given[..data_in_bytes.min(given.len())].contains(&CANARY), "data that nobody has written");
                }
                ClientEvent::Failed { id, .. } => assert!(self.waiting.remove(&id.number()), "{id:?} ends twice"),
                ClientEvent::GivenUp(_) => self.given_up = true,
                ClientEvent::OutOfPatience(_) => self.is_away = true,
                ClientEvent::Connected { .. } => self.is_away = false,
                _ => {}
            }
        }
        let mut closed = Vec::new();
        while let Some(action) = self.client.poll_action() {
            match action {
                ClientAction::Connect { connection, .. } => self.opening.push(connection),
                ClientAction::Close { connection } => {
                    closed.push(connection);
                    self.opening.retain(|&known| known != connection);
                }
            }
        }
        closed
    }

    /// Gives a command.
    pub fn order(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut data_in = if u.arbitrary()? { self.memory.frame(1 + usize::from(u.arbitrary::<u16>()?)) } else { None };
        data_in.iter_mut().filter(|_| self.is_marked).for_each(|frame| frame.fill(CANARY));
        let data_out = u.arbitrary::<bool>()?.then(|| Slice::from(vec![7; 3000]));
        let data_out = if u.ratio(1, 8)? { Some(Slice::from(vec![8; 200_000])) } else { data_out };
        let cdb = if u.arbitrary()? { Cdb::from([0x28; 10]) } else { Cdb::from([0x89; 32]) };
        let lun = Lun::new(u.int_in_range(0..=1)?).unwrap_or_default();
        let order = Order { lun, cdb, is_repeatable: u.arbitrary()?, data_out, data_in };
        if let Ok(id) = self.client.order(order, self.now) {
            assert!(!self.given_up && !self.is_away && self.waiting.insert(id.number()));
        }
        Ok(())
    }

    /// What else may be asked of a client.
    pub fn ask(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=3u8)? {
            0 => self.client.hold_after_restart(),
            1 => self.client.release(),
            2 => self.client.abandon(Lun::default(), Failure::InDoubt),
            _ => self.client.discover(self.now),
        }
        Ok(())
    }

    /// Some time passes.
    pub fn wait(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.now += Duration::from_micros(100 << u.int_in_range(0..=16u32)?);
        self.client.handle_timeout(self.now);
        Ok(())
    }

    fn assert_ended(&self) {
        assert!(self.waiting.is_empty(), "never ended: {:?}", self.waiting);
    }
}

/// The answer to a login request as an honest target would give it, unless it is to be odd.
pub fn login_response(
    u: &mut Unstructured<'_>,
    request: &LoginRequest,
    status: u32,
    is_odd: bool,
) -> Result<LoginResponse> {
    Ok(LoginResponse {
        transits: request.transits,
        continues: is_odd && u.arbitrary()?,
        current_stage: request.current_stage,
        next_stage: request.next_stage,
        isid: request.isid,
        tsih: request.tsih.max(1),
        task_tag: request.task_tag,
        status_number: status,
        expected_command_number: request.command_number,
        max_command_number: request.command_number.wrapping_add(u.int_in_range(0..=20)?),
        status_class: if is_odd { u.int_in_range(0..=4)? } else { 0 },
        status_detail: if is_odd { u.int_in_range(0..=12)? } else { 0 },
        ..LoginResponse::default()
    })
}

/// A PDU of a target whose fields mean something, mostly, with one of these operation codes; the client has sent those.
pub fn plausible(
    u: &mut Unstructured<'_>,
    codes: &[u8],
    sent: &[Header],
    status: &mut u32,
) -> Result<(Header, Vec<u8>)> {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = *u.choose(codes)?;
    bytes[1] = u.arbitrary()?;
    if u.ratio(1, 4)? {
        u.fill_buffer(&mut bytes[2..4])?;
    }
    let tag = if sent.is_empty() || u.ratio(1, 8)? {
        *u.choose(&[u32::MAX, 0, 0x8000_0000, 1])?
    } else {
        u.choose(sent)?.task_tag()
    };
    bytes[16..20].copy_from_slice(&tag.to_be_bytes());
    let transfer_tag = if u.arbitrary()? { u32::MAX } else { u.arbitrary()? };
    bytes[20..24].copy_from_slice(&transfer_tag.to_be_bytes());
    bytes[24..28].copy_from_slice(&status.to_be_bytes());
    *status = status.wrapping_add(u32::from(u.ratio(7, 8)?));
    bytes[28..32].copy_from_slice(&u32::from(u.arbitrary::<u8>()?).to_be_bytes());
    bytes[32..36].copy_from_slice(&u32::from(u.arbitrary::<u8>()?).to_be_bytes());
    for at in [36, 40, 44] {
        let number = match u.int_in_range(0..=3u8)? {
            0 => 0,
            1 | 2 => u32::from(u.arbitrary::<u16>()? % 5000),
            _ => u.arbitrary()?,
        };
        bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
    let data = match u.int_in_range(0..=3u8)? {
        0 | 1 => Vec::new(),
        2 => vec![u.arbitrary()?; usize::from(u.arbitrary::<u16>()? % 6000)],
        _ if sent.is_empty() => vec![0; HEADER_BYTES],
        _ => u.choose(sent)?.as_bytes().to_vec(),
    };
    Ok((Header::from_bytes(bytes), data))
}

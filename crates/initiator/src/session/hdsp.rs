//! A session by HDSP, with one disk of a server, or with the server as a whole to see what it has. A link that goes away and comes back
//! is an outage like any other.

mod ata;
mod discover;
mod standing;
mod terms;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use sanwire_buffer::{Frame, Slices};
use sanwire_core::{Instant, LinkId, Lun, Protection};
use sanwire_hdsp::wire::{DiskType, ErrorCode};
use sanwire_hdsp::{Client, ClientEvent, Command, CommandId, Order as WireOrder, Outcome, ServerInfo as WireServer};
use sanwire_io::{Clock, ReceivePath, Waker};
use sanwire_scsi::Status;

use self::ata::AtaDisk;
pub use self::discover::{HdspFound, hdsp_servers};
use self::standing::Standing;
use self::terms::{Form, Trust, config, deadline, info, packet_max_bytes, tells_of_preemption};
use super::{Answer, Event, Failure, Order, OrderId, ServerInfo, Session};
use crate::endpoint::{ConnectError, Endpoint};
use crate::options::ClientOptions;
use crate::ports::Ports;
use crate::url::HdspServer;

/// Packets taken from the ports before the driver looks at anything else.
const RECEIVE_BUDGET: usize = 64;

/// Packets sent before the driver looks for what has arrived.
const TRANSMIT_BUDGET: usize = 256;

/// How often the ports are looked after while there is no connection.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// Commands that wait for their answers.
const COMMANDS_MAX: u16 = 128;

/// The address that is no disk's: the server as a whole, as one SCSI target.
const SERVER_ADDRESS: u8 = 0xff;

/// The client's end of the protocol and its ports.
pub(crate) struct Hdsp {
    protocol: Client,
    ports: Ports,
    /// The links on which the server may be, and what they take.
    links: Vec<(LinkId, u16)>,
    form: Form,
    server: Option<WireServer>,
    /// What the volume is called, where it is named by that.
    volume: Option<String>,
    /// Orders that the protocol could not take.
    refused_orders: u64,
    reconnect_patience: Option<Duration>,
    /// When there is no more waiting for a connection.
    patience_ends: Option<Instant>,
    standing: Standing,
    /// When a disk is asked again what it is that did not say so.
    ask_at: Option<Instant>,
    /// There will be no session any more: how commands end.
    over: Option<Failure>,
    /// The server has forgotten what was given, and somebody sees first whether the disk is the same.
    holds_after_restart: bool,
    /// Why the server did not want us when it was asked last.
    refused: Option<Failure>,
    trust: Trust,
    events: VecDeque<Event>,
    tend_at: Instant,
}

impl Hdsp {
    pub(crate) fn open(
        server: &HdspServer,
        volume: Option<&str>,
        options: &ClientOptions,
        now: Instant,
    ) -> Result<Hdsp, ConnectError> {
        if server.is_everybody() {
            return Err(ConnectError::NoTarget { host: server.to_string() });
        }
        let Endpoint { ports, places, .. } = discover::locate(server, options)?;
        let mut links: Vec<_> = places.iter().map(|place| (place.link, packet_max_bytes(&ports, place.link))).collect();
        links.dedup();
        let config = config(server, volume, options, (&ports, places))?;
        Ok(Hdsp {
            protocol: Client::new(config, now),
            ports,
            links,
            form: Form::Scsi,
            server: None,
            volume: volume.filter(|volume| !volume.starts_with('@')).map(ToOwned::to_owned),
            refused_orders: 0,
            reconnect_patience: options.reconnect_patience,
            patience_ends: deadline(now, options.connect_patience),
            standing: Standing::default(),
            ask_at: None,
            over: None,
            holds_after_restart: false,
            refused: None,
            trust: Trust::new(options),
            events: VecDeque::new(),
            tend_at: now + TEND_EVERY,
        })
    }

    fn take(&mut self, event: ClientEvent, now: Instant) {
        match event {
            ClientEvent::Connected(server) => self.connected(server, now),
            ClientEvent::Disconnected => {
                let is_news = self.standing.disconnected();
                self.lost(is_news, now);
            }
            ClientEvent::Forgotten if !self.holds_after_restart => self.protocol.resume(now),
            ClientEvent::Forgotten => {}
            ClientEvent::Refused(reason) => self.refused_for(reason),
            ClientEvent::VolumeGone => self.give_up(Failure::VolumeGone),
            ClientEvent::OtherServer { key } => self.trust.note_other_server(key),
            ClientEvent::Ended { id, outcome, data, data_bytes } => self.ended(id, outcome, data, data_bytes),
        }
    }

    fn connected(&mut self, server: WireServer, now: Instant) {
        self.refused = None;
        self.trust.note_server();
        let is_news = self.standing.connected(server.is_resumed);
        self.lost(is_news, now);
        let (disk_type, address) = (server.disk_type, server.disk_address);
        self.server = Some(server);
        match (disk_type, &mut self.form) {
            (DiskType::Ata | DiskType::Sata, Form::Ata(disk)) => {
                if self.standing.is_fresh() {
                    return disk.identify(&mut self.protocol, now);
                }
            }
            (DiskType::Ata | DiskType::Sata, _) => {
                let name = self.volume.clone().unwrap_or_else(|| format!("disk{address}"));
                let mut disk = AtaDisk::new(name);
                disk.identify(&mut self.protocol, now);
                self.form = Form::Ata(Box::new(disk));
                return;
            }
            _ if address == SERVER_ADDRESS => self.form = Form::WithLun,
            _ => self.form = Form::Scsi,
        }
        self.tell_connected();
    }

    fn lost(&mut self, is_news: bool, now: Instant) {
        if is_news {
            self.patience_ends = self.reconnect_patience.and_then(|patience| deadline(now, patience));
            self.events.push_back(Event::Lost { announced: false });
        }
    }

    fn tell_connected(&mut self) {
        if let Some(server) = &self.server {
            let (server, resumed) = (info(server, &self.ports), self.standing.told());
            (self.patience_ends, self.ask_at) = (None, None);
            self.events.push_back(Event::Connected { server, resumed });
        }
    }

    /// What the server says will hardly change: at the first try the user hears it at once.
    fn refused_for(&mut self, reason: ErrorCode) {
        let failure = self.trust.refusal(reason);
        let is_final = matches!(
            reason,
            ErrorCode::NoSuchDisk | ErrorCode::DiskType | ErrorCode::NotAuthentic | ErrorCode::Parameters
        );
        self.refused = Some(failure.clone());
        if is_final && !self.standing.was_connected() {
            self.give_up(failure);
        }
    }

    fn give_up(&mut self, failure: Failure) {
        if self.over.is_none() {
            self.over = Some(if failure == Failure::VolumeGone { failure.clone() } else { Failure::Closed });
            self.patience_ends = None;
            self.protocol.close();
            self.events.push_back(Event::GivenUp(failure));
        }
    }

    fn ended(&mut self, id: CommandId, outcome: Outcome, data_in: Option<Frame>, data_in_bytes: usize) {
        let (id, work) = match &mut self.form {
            Form::Ata(disk) if disk.is_asking(id) => {
                return match disk.identified(&outcome, data_in.as_deref()) {
                    Some(Ok(())) => self.tell_connected(),
                    // A disk that was there may be again.
                    Some(Err(what)) if self.standing.was_connected() => {
                        tracing::warn!("the disk cannot be used: {what}; asking again");
                        self.ask_at = Some(Clock::new().now() + TEND_EVERY);
                    }
                    Some(Err(what)) => self.give_up(Failure::Protocol(what)),
                    None => {}
                };
            }
            Form::Ata(disk) => match disk.finish(id) {
                Some((id, work)) => (id, Some(work)),
                None => return,
            },
            Form::Scsi | Form::WithLun => (OrderId(id.number()), None),
        };
        if let Outcome::Scsi { sense, .. } = &outcome
            && tells_of_preemption(sense)
        {
            // The server answers like this all that was given before it was heard: what is given in another session comes after that.
            self.protocol.renew(Clock::new().now());
        }
        let event = match outcome {
            Outcome::Scsi { status, sense } => match Status::from_code(status) {
                Some(status) => Event::Completed { id, answer: Answer { status, sense }, data_in, data_in_bytes },
                None => {
                    let failure = Failure::Protocol(format!("the server answers with the status {status:#04x}"));
                    Event::Failed { id, failure, data_in }
                }
            },
            Outcome::Ata(registers) => match (&self.form, &work) {
                (Form::Ata(disk), Some(work)) => disk.ended((id, work), &registers, data_in, data_in_bytes),
                _ => Event::Failed { id, failure: Failure::InDoubt, data_in },
            },
            Outcome::Lost => Event::Failed { id, failure: self.over.clone().unwrap_or(Failure::InDoubt), data_in },
            Outcome::TooLong => Event::Failed { id, failure: Failure::TooLarge, data_in },
        };
        self.events.push_back(event);
    }

    fn lose_patience(&mut self) {
        self.patience_ends = None;
        let failure = self.refused.clone().unwrap_or_else(|| self.trust.silence());
        if self.standing.was_connected() {
            let now = Clock::new().now();
            // A server may still execute what was given, under numbers that others would have.
            if self.protocol.in_transit() > 0 {
                self.protocol.begin_anew(now);
            }
            self.drain(now);
            self.events.push_back(Event::OutOfPatience(failure));
        } else {
            self.give_up(failure);
        }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.protocol.poll_event() {
            self.take(event, now);
        }
    }
}

impl Session for Hdsp {
    fn receive_path(&self) -> Option<ReceivePath> {
        self.ports.receive_path()
    }

    fn receive(&mut self, now: Instant) -> usize {
        // Also while there is a connection: it outlives a link that is away for some seconds.
        if now >= self.tend_at {
            self.tend_at = now + TEND_EVERY;
            self.ports.tend();
            for (link, takes) in &mut self.links {
                // One that is away for a moment takes what it took.
                match packet_max_bytes(&self.ports, *link) {
                    0 => {}
                    now_takes if now_takes == *takes => {}
                    now_takes => {
                        *takes = now_takes;
                        self.protocol.set_link(*link, now_takes, now);
                    }
                }
            }
        }
        let protocol = &mut self.protocol;
        self.ports.receive(RECEIVE_BUDGET, &mut |path, bytes| protocol.handle_input(path, bytes, now))
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.protocol.poll_timeout().is_some_and(|at| at <= now) {
            self.protocol.handle_timeout(now);
        }
        if self.patience_ends.is_some_and(|at| at <= now) {
            self.lose_patience();
        }
        if self.ask_at.take_if(|at| *at <= now).is_some()
            && let Form::Ata(disk) = &mut self.form
        {
            disk.identify(&mut self.protocol, now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.protocol.poll_timeout().into_iter().chain(self.patience_ends).chain(self.ask_at).min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.drain(Clock::new().now());
        }
        self.events.pop_front()
    }

    fn transmit(&mut self, now: Instant) -> usize {
        if let Form::Ata(disk) = &mut self.form {
            disk.give(&mut self.protocol, self.standing.is_fresh(), now);
            while let Some(refused) = disk.poll_refused() {
                self.events.push_back(refused);
            }
        }
        let mut sent = 0;
        while sent < TRANSMIT_BUDGET
            && let Some((path, packet)) = self.protocol.poll_transmit(now)
        {
            sent += 1;
            self.ports.queue(path, packet);
        }
        if sent > 0 {
            self.ports.flush();
        }
        sent
    }

    fn order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order> {
        // What is known of a disk answers nothing while it may be another one.
        if self.over.is_some() || self.standing.is_fresh() || self.in_transit() >= COMMANDS_MAX.into() {
            return Err(order);
        }
        let bytes = match &mut self.form {
            Form::Ata(disk) => return Ok(disk.order(order, &mut self.events)),
            Form::WithLun => [&order.lun.to_wire()[..], &order.cdb].concat(),
            Form::Scsi => order.cdb.to_vec(),
        };
        let Order { is_repeatable, data_out, data_in, .. } = order;
        let wire = WireOrder {
            command: Command::Scsi(bytes),
            data: data_out.map(Slices::from),
            room: data_in,
            more: false,
            may_repeat: is_repeatable,
            is_probe: self.protocol.is_held(),
        };
        match self.protocol.order(wire, now) {
            Ok(id) => Ok(OrderId(id.number())),
            Err(error) => {
                let id = OrderId(u64::MAX - self.refused_orders);
                self.refused_orders += 1;
                let failure = Failure::Protocol(error.to_string());
                self.events.push_back(Event::Failed { id, failure, data_in: None });
                Ok(id)
            }
        }
    }

    fn in_transit(&self) -> usize {
        let pending = if let Form::Ata(disk) = &self.form { disk.pending() } else { 0 };
        self.protocol.in_transit() + pending
    }

    fn hold_after_restart(&mut self) {
        self.holds_after_restart = true;
    }

    fn release(&mut self) {
        self.protocol.resume(Clock::new().now());
    }

    /// There is one unit.
    fn abandon(&mut self, _lun: Lun) {
        self.protocol.abandon_held();
    }

    fn withdraw(&mut self, id: OrderId) {
        let command = match &self.form {
            Form::Ata(disk) => disk.command_of(id),
            Form::Scsi | Form::WithLun => Some(CommandId::new(id.0)),
        };
        command.into_iter().for_each(|command| self.protocol.withdraw(command));
    }

    fn server(&self) -> Option<ServerInfo> {
        self.server.as_ref().map(|server| info(server, &self.ports))
    }

    /// Those of the server as a whole tell nothing of how one of its volumes would be guarded.
    fn protection(&self, _lun: Lun) -> Option<Protection> {
        let of_disk = self.server.as_ref().filter(|server| server.disk_address != SERVER_ADDRESS);
        of_disk.map(|server| server.protection)
    }

    fn disconnect(&mut self, _now: Instant) {
        self.give_up(Failure::Closed);
    }

    fn wait(&mut self, waker: &Waker, deadline: Option<Instant>) -> io::Result<()> {
        self.ports.wait(Some(waker), deadline, &Clock::new())
    }
}

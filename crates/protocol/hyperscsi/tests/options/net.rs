//! A server and its clients in memory, over a network that loses, doubles and delays packets, behind a link of some rate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Region};
use sanwire_core::{ClientId, Instant, Lun, Path, Peer, Protection};
use sanwire_hyperscsi::wire::command::Answer;
use sanwire_hyperscsi::wire::{Opcode, Prefix};
use sanwire_hyperscsi::{
    Admission, Agreed, Client, ClientConfig, ClientEvent, DesiredOptions, DeviceOption, Failure, Identity, LinkLimits,
    Order, Server, ServerConfig, ServerEvent,
};
use sanwire_scsi::{Reply, Status};

use crate::common::{self, bytes, command};

pub(crate) const READ: u8 = 0x28;
pub(crate) const WRITE: u8 = 0x2a;

const LINK: LinkLimits = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 256 };

/// What the server wants of each client; changed while it runs.
#[derive(Clone, Default)]
pub(crate) struct Terms {
    pub(crate) wishes: Arc<Mutex<DesiredOptions>>,
    pub(crate) weights: BTreeMap<ClientId, u16>,
    /// How every packet of data is guarded at least: what the server wants, and what its clients want.
    pub(crate) least: [Protection; 2],
    /// What the server wants of the connection in place of that, and what unit 3 demands at least; they change too.
    pub(crate) floor: Arc<Mutex<Option<Protection>>>,
    pub(crate) third: Arc<Mutex<Protection>>,
}

impl Admission for Terms {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn weight(&self, client: ClientId) -> u16 {
        self.weights.get(&client).copied().unwrap_or(1)
    }

    fn wishes(&self, _: ClientId) -> DesiredOptions {
        self.wishes.lock().unwrap().clone()
    }
}

/// What happens to packets on their way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) lost_per_thousand: u64,
    pub(crate) doubled_per_thousand: u64,
    pub(crate) delay_max_us: u64,
}

/// All ends and what is between them.
pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    pub(crate) weather: Weather,
    /// What clients ask of the server is lost, but for data.
    pub(crate) is_deaf: bool,
    /// What the server's link carries in a second, if it is not infinitely fast.
    pub(crate) link_bytes_per_second: Option<u64>,
    /// What reads are answered with, repeated.
    pub(crate) content: Vec<u8>,
    /// What was written.
    pub(crate) written: Vec<Vec<u8>>,
    /// Answers of each client: status and data.
    pub(crate) answers: Vec<Vec<(Status, Vec<u8>)>>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) lost: usize,
    /// What both ends agreed on, as the server saw it at first.
    pub(crate) opened: Vec<Agreed>,
    /// What they have agreed on since, as the server was told last.
    pub(crate) changed: Option<Agreed>,
    /// DesiredOptions of clients that were refused.
    pub(crate) refused: Vec<DeviceOption>,
    /// Bytes of packets that were sent to each client, and by it.
    pub(crate) sent_to: Vec<u64>,
    pub(crate) sent_by: Vec<u64>,
    /// How packets of data were guarded.
    pub(crate) guards: BTreeSet<Protection>,
    link_free_at: Instant,
    under_way: BTreeMap<(Instant, u64), UnderWay>,
    serial: u64,
    random: u64,
}

/// To whom (nobody: the server), whose packet, and what it holds.
type UnderWay = (Option<usize>, usize, Vec<u8>);

pub(crate) fn identity(number: usize) -> Identity {
    Identity::from_private([1 + number as u8; 32]).unwrap()
}

fn path(host: usize) -> Path {
    common::path(host as u8)
}

fn client(number: usize, key: usize, wishes: DesiredOptions, protection_min: Protection) -> Client {
    let config = ClientConfig {
        identity: identity(key),
        link: LINK,
        commands_max: 32,
        protection_min,
        wishes,
        connect_patience: Duration::from_secs(20),
        seed: [4 + number as u8; 32],
        ..common::client_config(path(100))
    };
    Client::new(config, Instant::ZERO)
}

fn server(terms: Terms) -> Server {
    let (least, floor, third) = (terms.least[0], Arc::clone(&terms.floor), Arc::clone(&terms.third));
    let level = move |lun: Option<Lun>| {
        let floor = || floor.lock().unwrap().unwrap_or(least);
        match lun.map(|lun| lun.number()) {
            Some(1) => least.max(Protection::Aes128Gcm),
            Some(3) => least.max(*third.lock().unwrap()),
            Some(_) => least,
            None => floor(),
        }
    };
    Server::new(ServerConfig {
        identity: Identity::from_private([99; 32]).unwrap(),
        compressible: Box::new(|lun| lun.number() != 2),
        memory: Region::new(16 << 20).unwrap(),
        links: vec![LINK],
        commands_max: 32,
        ..common::server_config(Box::new(terms), Box::new(level))
    })
}

impl Net {
    pub(crate) fn new(terms: Terms, wishes: Vec<DesiredOptions>, weather: Weather) -> Self {
        Net::with_keys(terms, wishes.into_iter().enumerate().collect(), weather)
    }

    /// Those of one key are one client to the server.
    pub(crate) fn with_keys(terms: Terms, clients: Vec<(usize, DesiredOptions)>, weather: Weather) -> Self {
        let (count, least) = (clients.len(), terms.least[1]);
        let client = |(number, (key, wishes))| client(number, key, wishes, least);
        Net {
            now: Instant::ZERO,
            server: server(terms),
            clients: clients.into_iter().enumerate().map(client).collect(),
            weather,
            is_deaf: false,
            link_bytes_per_second: None,
            content: vec![9],
            written: Vec::new(),
            answers: vec![Vec::new(); count],
            failures: Vec::new(),
            lost: 0,
            opened: Vec::new(),
            changed: None,
            refused: Vec::new(),
            sent_to: vec![0; count],
            sent_by: vec![0; count],
            guards: BTreeSet::new(),
            link_free_at: Instant::ZERO,
            under_way: BTreeMap::new(),
            serial: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn send(&mut self, to: Option<usize>, client: usize, packet: &Packet) {
        let bytes = bytes(packet);
        let count = if to.is_some() { &mut self.sent_to } else { &mut self.sent_by };
        count[client] += bytes.len() as u64;
        let (prefix, ..) = Prefix::read(&bytes).unwrap();
        if matches!(prefix.header.opcode, Opcode::HcbeRequest | Opcode::HcbeReply) {
            self.guards.insert(prefix.protection);
        }
        let is_unheard = self.is_deaf && to.is_none() && prefix.header.opcode == Opcode::AdnRequest;
        if is_unheard || self.draw(1000) < self.weather.lost_per_thousand {
            return;
        }
        let copies = 1 + u64::from(self.draw(1000) < self.weather.doubled_per_thousand);
        for _ in 0..copies {
            let delay = 50 + self.draw(self.weather.delay_max_us);
            self.serial += 1;
            let at = self.now + Duration::from_micros(delay);
            self.under_way.insert((at, self.serial), (to, client, bytes.clone()));
        }
    }

    fn serve(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task } => {
                    if let Some(data) = &task.data_out {
                        self.written.push(data.to_vec());
                    }
                    let length = task.data_in_max_bytes as usize;
                    let data: Vec<u8> = self.content.iter().copied().cycle().take(length).collect();
                    self.server.reply(handle, Reply::good((length > 0).then(|| data.into())), self.now);
                }
                ServerEvent::SessionOpened { options, .. } => self.opened.push(options),
                ServerEvent::Options { options, .. } | ServerEvent::SessionResumed { options, .. } => {
                    self.changed = Some(*options);
                }
                _ => {}
            }
        }
        for (number, client) in self.clients.iter_mut().enumerate() {
            while let Some(event) = client.poll_event() {
                match event {
                    ClientEvent::Completed {
                        answer: Answer::Command { status, .. }, data_in, data_in_bytes, ..
                    } => {
                        let data = data_in.map(|frame| frame[..data_in_bytes].to_vec()).unwrap_or_default();
                        self.answers[number].push((status, data));
                    }
                    ClientEvent::Lost { .. } => self.lost += 1,
                    ClientEvent::WishRefused(option) => self.refused.push(option),
                    ClientEvent::GivenUp(failure) | ClientEvent::Failed { failure, .. } => self.failures.push(failure),
                    _ => {}
                }
            }
        }
    }

    fn transmit(&mut self) -> bool {
        for number in 0..self.clients.len() {
            if let Some((_, packet)) = self.clients[number].poll_transmit(self.now) {
                self.send(None, number, &packet);
                return true;
            }
        }
        if self.link_free_at > self.now {
            return false;
        }
        let Some((to, packet)) = self.server.poll_transmit(self.now) else { return false };
        if let Some(rate) = self.link_bytes_per_second {
            let nanos = packet.length_bytes() as u64 * 1_000_000_000 / rate;
            self.link_free_at = self.now.max(self.link_free_at) + Duration::from_nanos(nanos);
        }
        let number = (0..self.clients.len()).find(|number| path(*number) == to).unwrap();
        self.send(Some(number), number, &packet);
        true
    }

    /// Lets time pass; `refill` is called whenever all is quiet at a moment.
    pub(crate) fn run_with(&mut self, duration: Duration, mut refill: impl FnMut(&mut Net)) {
        let end = self.now + duration;
        loop {
            self.serve();
            refill(self);
            if self.transmit() {
                continue;
            }
            let packet = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let link = Some(self.link_free_at).filter(|at| *at > self.now);
            let timers = self.clients.iter().map(Client::poll_timeout).chain([self.server.poll_timeout()]);
            let next = timers.chain([packet, link]).flatten().min();
            let Some(next) = next.filter(|next| *next < end) else { break };
            self.now = self.now.max(next) + Duration::from_nanos(1);
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
                match entry.remove() {
                    (Some(number), _, bytes) => self.clients[number].handle_input(path(100), &bytes, self.now),
                    (None, number, bytes) => self.server.handle_input(path(number), &bytes, self.now),
                }
            }
            self.clients.iter_mut().for_each(|client| client.handle_timeout(self.now));
            self.server.handle_timeout(self.now);
        }
        self.now = end;
    }

    pub(crate) fn run(&mut self, duration: Duration) {
        self.run_with(duration, |_| {});
    }

    /// Gives a command; false while too many are in transit.
    pub(crate) fn order(&mut self, number: usize, lun: u16, operation: u8, out: &[u8], in_bytes: usize) -> bool {
        let order = Order {
            lun: Lun::new(lun).unwrap(),
            ask: command(operation),
            is_repeatable: true,
            data_out: (!out.is_empty()).then(|| out.to_vec().into()),
            data_in: (in_bytes > 0).then(|| Frame::from(vec![0; in_bytes])),
        };
        self.clients[number].order(order, self.now).is_ok()
    }

    /// What a client believes to be agreed on.
    pub(crate) fn agreed(&self, number: usize) -> Option<Agreed> {
        self.clients[number].server().map(|server| server.options)
    }

    /// Whether every client is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.clients.iter().all(|client| client.server().is_some())
    }

    /// The different answers that a client has had.
    pub(crate) fn kinds_of_answers(&self, number: usize) -> BTreeSet<u8> {
        self.answers[number].iter().map(|(status, _)| *status as u8).collect()
    }
}

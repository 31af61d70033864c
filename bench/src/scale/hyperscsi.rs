//! HyperSCSI sessions by the protocol's own end, many in one thread.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant as StdInstant};

use anyhow::{Context, Result, bail};
use sanwire_core::{Instant, LinkId, Lun, Path, Peer, Protection};
use sanwire_hyperscsi::wire::command::Ask;
use sanwire_hyperscsi::{Client, ClientConfig, ClientEvent, DesiredOptions, Identity, LinkLimits, Order, Recovery};
use sanwire_io::Clock;

use crate::random::Random;

const TIMEOUT: Duration = Duration::from_secs(20);
const LINK: LinkLimits = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 64 };

const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// How long a packet is waited for before clocks are looked at.
const WAIT: Duration = Duration::from_millis(1);

/// A session, connected.
pub(crate) struct HyperScsiSession {
    client: Client,
    socket: UdpSocket,
    server: SocketAddr,
}

impl HyperScsiSession {
    /// Connects as a client of its own, from an address of its own.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn connect(server: SocketAddr, number: u32, random: &mut Random) -> Result<Self> {
        let [_, _, high, low] = number.to_be_bytes();
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 1 + high, low, 1), 0))?;
        socket.set_read_timeout(Some(WAIT))?;
        let mut bytes = || {
            let mut bytes = [0; 32];
            bytes.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next().to_le_bytes()));
            bytes
        };
        let config = ClientConfig {
            name: format!("bench-{number}"),
            identity: Identity::from_private(bytes())?,
            psk: [0; 32],
            server_key: None,
            path: Path { link: LinkId(0), peer: Peer::Udp(server) },
            server_name: String::new(),
            link: LINK,
            commands_max: 8,
            transfer_max_bytes: 64 << 10,
            protection_min: Protection::Checksum,
            wishes: DesiredOptions::default(),
            recovery: Recovery::Selective,
            connect_patience: TIMEOUT,
            reconnect_patience: None,
            seed: bytes(),
        };
        let mut session = HyperScsiSession { client: Client::new(config, now()), socket, server };
        session.until(|event| match event {
            ClientEvent::Connected { .. } => Some(Ok(())),
            ClientEvent::GivenUp(failure) => Some(Err(anyhow::anyhow!("{failure}"))),
            _ => None,
        })??;
        Ok(session)
    }

    /// Asks whether a unit is ready. The first answer is a unit attention.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn touch(&mut self, lun: u16) -> Result<()> {
        let lun = Lun::new(lun).context("a LUN")?;
        let order = Order {
            lun,
            ask: Ask::Command(TEST_UNIT_READY.into()),
            is_repeatable: true,
            data_out: None,
            data_in: None,
        };
        if self.client.order(order, now()).is_err() {
            bail!("no room for a command");
        }
        self.until(|event| match event {
            ClientEvent::Completed { .. } => Some(Ok(())),
            ClientEvent::Failed { failure, .. } => Some(Err(anyhow::anyhow!("{failure}"))),
            _ => None,
        })?
    }

    /// Answers what is there, so that the server does not take the session for lost.
    ///
    /// # Errors
    /// When the socket fails.
    pub(crate) fn tend(&mut self) -> Result<()> {
        self.socket.set_nonblocking(true)?;
        while self.receive() {}
        self.transmit()?;
        while self.client.poll_event().is_some() {}
        Ok(self.socket.set_nonblocking(false)?)
    }

    fn until<T>(&mut self, mut find: impl FnMut(ClientEvent) -> Option<T>) -> Result<T> {
        let end = StdInstant::now() + TIMEOUT;
        loop {
            while let Some(event) = self.client.poll_event() {
                if let Some(found) = find(event) {
                    self.transmit()?;
                    return Ok(found);
                }
            }
            self.transmit()?;
            self.receive();
            if StdInstant::now() > end {
                bail!("the server does not answer");
            }
        }
    }

    /// Takes a packet, if one comes; `false` when none does.
    fn receive(&mut self) -> bool {
        let mut packet = [0; 2048];
        let received = self.socket.recv(&mut packet);
        if let Ok(length) = received {
            let path = Path { link: LinkId(0), peer: Peer::Udp(self.server) };
            self.client.handle_input(path, &packet[..length], now());
        }
        if self.client.poll_timeout().is_some_and(|at| at <= now()) {
            self.client.handle_timeout(now());
        }
        received.is_ok()
    }

    fn transmit(&mut self) -> Result<()> {
        while let Some((_, packet)) = self.client.poll_transmit(now()) {
            let bytes = packet.to_vec();
            self.socket.send_to(&bytes, self.server)?;
        }
        Ok(())
    }
}

fn now() -> Instant {
    Clock::new().now()
}

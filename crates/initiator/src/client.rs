//! The library's door: connect, list, open, and run.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::JoinHandle;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Movement, Outages};
use sanwire_io::{Clock, ReceivePath, Waker};
use sanwire_scsi::reservation::TransportId;

use crate::driver::{Claimant, ConnectionState, Driver, OptionChanges};
use crate::endpoint::ConnectError;
use crate::inventory::{self, Rival, Sought, VolumeSummary};
use crate::looker::Looker;
use crate::options::ClientOptions;
use crate::pauser::Pauser;
use crate::queue::OpQueue;
use crate::session::table::{self, Naming, Opened};
use crate::session::{LinkStatus, ServerInfo};
use crate::url::{Server, Url};
use crate::volume::{BufferPool, InfoCell, Volume, VolumeInfo};

/// Room for what a server answers to [`Client::administer`].
const ADMINISTER_ROOM_BYTES: u32 = 1 << 20;

/// A connection to one server, and the thread that drives it: the one that calls [`Client::block_on`].
///
/// ```no_run
/// use sanwire_initiator::{Client, ClientOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = Client::connect(&"hs+ip://127.0.0.1/disk0".parse()?, &ClientOptions::anonymous()?)?;
/// let volume = client.open("disk0")?;
/// let block = client.block_on(async {
///     let buffer = volume.buffer(4096).await?;
///     volume.read(0, buffer).await
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Client {
    driver: Driver,
    root: Arc<Root>,
    buffers: BufferPool,
    server: ServerInfo,
    wire: Arc<str>,
    naming: Naming,
    /// As whom it has volumes for itself.
    claimant: Claimant,
    /// Names that its sessions have at servers.
    own_ports: Vec<TransportId>,
}

/// Wakes the root future of [`Client::block_on`].
struct Root {
    is_woken: AtomicBool,
    waker: Waker,
}

impl Wake for Root {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// How long the links of a new connection may take to be found.
const LINKS_TIMEOUT: Duration = Duration::from_secs(1);

impl Client {
    /// Connects to the server of a URL; a volume in it is not looked at, but by HDSP, where each session has one.
    ///
    /// # Errors
    /// [`ConnectError`] says what, where, and what to do.
    pub fn connect(url: &Url, options: &ClientOptions) -> Result<Client, ConnectError> {
        Client::connect_to((&url.server, url.volume.as_deref()), &url.to_string(), options)
    }

    fn connect_to(
        place: (&Server, Option<&str>),
        shown: &str,
        options: &ClientOptions,
    ) -> Result<Client, ConnectError> {
        let resource = |what| move |source| ConnectError::Resource { what, source };
        // What is kept of writes does not take the memory for others.
        let keep_bytes = usize::try_from(options.keep_writes_bytes).unwrap_or(usize::MAX);
        let memory_bytes = options.memory_bytes.saturating_add(keep_bytes.min(options.memory_bytes));
        let region = Region::new(memory_bytes).map_err(resource("memory"))?;
        let waker = Waker::new().map_err(resource("an event descriptor"))?;
        let now = Clock::new().now();
        let Opened { session, wire, naming } = table::open(place, options, &waker, now)?;
        let mut driver = Driver::new(session, waker.clone());
        let woken = waker.clone();
        let buffers = BufferPool::new(region).notifying(Arc::new(move || woken.wake()));
        driver.keep_writes(options.keep_writes_bytes, buffers.clone());
        let server = loop {
            match driver.link() {
                ConnectionState::Up(server) => break server.clone(),
                ConnectionState::Down(failure) => {
                    return Err(ConnectError::Handshake { server: shown.to_owned(), failure: failure.clone() });
                }
                ConnectionState::Seeking => driver.turn_or_sleep(),
            }
        };
        let root = Arc::new(Root { is_woken: AtomicBool::new(true), waker });
        let claimant = Claimant::new(options.identity.client_id(), options.claims.clone());
        let own_ports = options.ports()?;
        Ok(Client { driver, root, buffers, server, wire, naming, claimant, own_ports })
    }

    /// The server, with the packet size that is known by now.
    fn server(&self) -> ServerInfo {
        self.driver.server().unwrap_or_else(|| self.server.clone())
    }

    /// The server's static public key, by which it can be pinned; `None` over iSCSI.
    #[must_use]
    pub fn server_key(&self) -> Option<[u8; 32]> {
        self.server().public_key
    }

    /// The links of the connection, once it is known which there are; none over iSCSI.
    pub fn links(&mut self) -> Vec<LinkStatus> {
        self.driver.links(LINKS_TIMEOUT)
    }

    /// How the data of answers came to its place, over iSCSI and iSER, on the connections that the session has now.
    #[must_use]
    pub fn movement(&self) -> Option<Movement> {
        self.driver.movement()
    }

    /// The RDMA adapter by which iSER goes, for people; `None` where none carries it.
    #[must_use]
    pub fn adapter(&self) -> Option<String> {
        self.driver.adapter()
    }

    /// How packets come to this host, on raw Ethernet; `None` over other wires.
    #[must_use]
    pub fn receive_path(&self) -> Option<ReceivePath> {
        self.driver.receive_path()
    }

    /// Lets the server send no answers from now on, or lets it go on: for a host that cannot take them for a while. Operations wait, and
    /// the connection stays; a new one is paused too. `false` over iSCSI, which cannot pause.
    pub fn pause(&mut self, is_paused: bool) -> bool {
        self.driver.pause(is_paused)
    }

    /// Lets another thread pause the server.
    #[must_use]
    pub fn pauser(&self) -> Pauser {
        self.driver.pauser()
    }

    /// Lets another thread see how the connection is.
    #[must_use]
    pub fn looker(&self) -> Looker {
        self.driver.looker()
    }

    /// A way to change the connection while it works, also on another thread.
    #[must_use]
    pub fn wishes(&self) -> Arc<OptionChanges> {
        self.driver.wishes()
    }

    /// How often the server was gone since the client has connected.
    #[must_use]
    pub fn outages(&self) -> Arc<Outages> {
        Arc::clone(&self.driver.outages)
    }

    /// The wire, in words for people.
    #[must_use]
    pub fn wire(&self) -> &str {
        &self.wire
    }

    /// The server's volumes, as far as this client may see them.
    ///
    /// # Errors
    /// [`ConnectError`] when the server is lost or answers nonsense.
    pub fn volumes(&mut self) -> Result<Vec<VolumeInfo>, ConnectError> {
        let volumes = inventory::volumes(&mut self.driver, &self.server.name)?;
        Ok(volumes.iter().map(|summary| self.volume_info(summary)).collect())
    }

    /// Does something with a server that may keep us waiting: it has this long for all its answers to what the client asks it itself. Who
    /// is too slow is a [`ConnectError::Handshake`].
    pub fn within<T>(&mut self, patience: Duration, work: impl FnOnce(&mut Self) -> T) -> T {
        self.driver.limit_own(Some(patience));
        let result = work(self);
        self.driver.limit_own(None);
        result
    }

    /// Asks the server to be managed by this client, in band and sealed: JSON in, JSON out. The server's management says what
    /// it knows; it refuses clients that may not manage it.
    ///
    /// # Errors
    /// [`ConnectError::NotManaged`] over iSCSI, AoE and HDSP, [`ConnectError::Handshake`] when the connection is lost for good, or the
    /// server was restarted meanwhile and nobody knows whether it was done.
    pub fn administer(&mut self, request: &[u8]) -> Result<Vec<u8>, ConnectError> {
        let server = self.server.name.clone();
        let room_bytes = self.server().transfer_max_bytes.min(ADMINISTER_ROOM_BYTES);
        match self.driver.administer(request, room_bytes as usize) {
            None => Err(ConnectError::NotManaged { server }),
            Some(answer) => answer.map_err(|failure| ConnectError::Handshake { server, failure }),
        }
    }

    /// Opens the volume of that name; by iSCSI, of that LUN.
    ///
    /// # Errors
    /// [`ConnectError::NoVolume`], or as for [`Client::volumes`].
    pub fn open(&mut self, name: &str) -> Result<Volume, ConnectError> {
        let sought = inventory::find(&mut self.driver, &self.server.name, name, self.naming)?;
        let summary = match sought {
            Sought::Found(summary) => summary,
            Sought::Absent(available) => {
                return Err(ConnectError::NoVolume {
                    server: self.server.name.clone(),
                    what: if self.naming == Naming::ByLun { "LUN" } else { "volume" },
                    volume: name.to_owned(),
                    available,
                });
            }
        };
        let info = InfoCell::new(self.volume_info(&summary));
        let waker = self.driver.waker().clone();
        let queue = OpQueue::new(Arc::new(move || waker.wake()));
        let volume = Volume::from_queue(info.clone(), &queue, self.buffers.clone());
        self.driver.serve(&summary, queue, info);
        Ok(volume)
    }

    /// Has the volume for this client alone to write to, as long as it is connected and while it is away: a persistent reservation,
    /// which is made again in every session. `preempt`: also where another client has reserved it, which then writes no more.
    ///
    /// # Errors
    /// [`ConnectError::Held`] when another client has reserved it, [`ConnectError::InUse`] when another program of this client has it on
    /// this host, [`ConnectError::NoReservations`] when the server cannot do that, [`ConnectError::Claim`] when its lock fails.
    pub fn make_exclusive(&mut self, volume: &Volume, preempt: bool) -> Result<(), ConnectError> {
        let rival = if preempt { Rival::Preempted } else { Rival::Respected };
        self.driver.make_exclusive(&volume.info(), &self.claimant, rival)
    }

    /// Makes sure that nobody has the volume for itself now, neither another client nor another program of this one on this host.
    ///
    /// # Errors
    /// [`ConnectError::Held`], [`ConnectError::InUse`]; or as for [`Client::volumes`]. A server that knows no reservations has none.
    pub fn check_unheld(&mut self, volume: &Volume) -> Result<(), ConnectError> {
        self.driver.check_unheld(&volume.info(), &self.claimant)
    }

    /// Another client that has written to the volume and is connected still, in words for people; `None` also where the server does
    /// not tell.
    ///
    /// # Errors
    /// As for [`Client::volumes`].
    pub fn other_writer(&mut self, volume: &Volume) -> Result<Option<String>, ConnectError> {
        let port = inventory::other_writer(&mut self.driver, volume.info().lun)?;
        let port = port.filter(|port| !self.own_ports.iter().any(|own| own.is_of_device_of(port)));
        Ok(port.map(|port| port.to_string()))
    }

    fn volume_info(&self, summary: &VolumeSummary) -> VolumeInfo {
        let server = self.server();
        let block = summary.block_bytes.max(1);
        let whole = |bytes: u32| summary.limits.transfer_max_bytes.min(bytes) / block * block;
        VolumeInfo {
            name: Arc::from(&*summary.name),
            lun: summary.lun,
            size_bytes: summary.size_bytes,
            block_bytes: summary.block_bytes,
            physical_block_bytes: summary.physical_block_bytes,
            read_only: summary.read_only,
            discards: summary.discards,
            transfer_max_bytes: whole(server.transfer_max_bytes),
            transfer_limit_bytes: whole(server.transfer_limit_bytes),
            range_max_bytes: summary.limits.range_max_bytes,
            server: Arc::from(&*server.name),
            wire: Arc::clone(&self.wire),
            unit: server.unit,
            protection: self.driver.protection(summary.lun),
            is_compressed: self.driver.is_compressed(summary.lun),
            rate_cap_bytes_per_second: server.rate_cap_bytes_per_second,
            identity: summary.mark.to_string().into(),
            naa: summary.mark.naa(),
        }
    }

    /// Runs a future on this thread, and the connection with it. Volumes used from other threads are served meanwhile.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let waker = std::task::Waker::from(Arc::clone(&self.root));
        let mut context = Context::from_waker(&waker);
        self.root.is_woken.store(true, Ordering::Release);
        loop {
            if self.root.is_woken.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                return output;
            }
            if !self.driver.turn() && !self.root.is_woken.load(Ordering::Acquire) {
                self.driver.sleep();
            }
        }
    }

    /// Moves the connection to a thread of its own, which ends when the last volume is dropped.
    ///
    /// # Errors
    /// The system's, when it has no thread.
    pub fn run_in_background(mut self) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("sanwire-client".to_owned()).spawn(move || {
            while !self.driver.is_unused() {
                self.driver.turn_or_sleep();
            }
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.release_exclusive();
        self.driver.leave();
    }
}

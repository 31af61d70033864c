//! RDMA adapters in memory, with descriptors, for a server and a client of this process.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use sanwire_buffer::Frame;
use sanwire_iser::{Counts, QueuePair};
use sanwire_iwarp::{Event, Memory, Order, Refusal, Refused, Registration, Stag, WorkId};
use sanwire_rdma::{Accepted, Adapters, Connection, Listener, Rdma};
use sanwire_sim::rdma::{Adapter, AdapterPlan, Cable, End, Pace, connect_by};

/// Where clients connect from.
const CLIENT: ([u8; 4], u16) = ([127, 0, 0, 1], 40_000);

/// The adapters of a host that speaks with itself.
#[derive(Clone)]
pub struct Fabric(Arc<Mutex<State>>);

struct State {
    adapters: [Adapter; 2],
    /// Those that listen.
    ports: BTreeMap<SocketAddr, Arc<Waiting>>,
    cables: Vec<Cable>,
}

/// Who waits to be taken.
struct Waiting {
    requests: Mutex<VecDeque<Accepted>>,
    bell: Arc<Bell>,
}

impl Fabric {
    /// Those of clients are like the first plan, those of servers like the second.
    pub fn new(plans: [AdapterPlan; 2]) -> Self {
        let adapters = plans.map(Adapter::new);
        Fabric(Arc::new(Mutex::new(State { adapters, ports: BTreeMap::new(), cables: Vec::new() })))
    }

    /// The way to them.
    pub fn rdma(&self) -> Rdma {
        Rdma::by(Arc::new(self.clone()))
    }

    /// Connections that there have been.
    pub fn connections(&self) -> usize {
        self.lock().cables.len()
    }

    /// Nothing passes any more on any connection that there is, and these ends learn it: the client's, the server's.
    pub fn cut_all(&self, is_noticed_by: [bool; 2]) {
        let cables = self.lock().cables.clone();
        cables.iter().for_each(|cable| cable.cut(is_noticed_by));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fabric")
    }
}

impl Adapters for Fabric {
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    fn listen(&self, mut address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let mut state = self.lock();
        if address.port() == 0 {
            address.set_port(50_000 + state.ports.len() as u16);
        }
        if state.ports.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (ears, bell) = Bell::new()?;
        let waiting = Arc::new(Waiting { requests: Mutex::default(), bell });
        state.ports.insert(address, Arc::clone(&waiting));
        Ok(Box::new(Port { fabric: self.clone(), address, waiting, ears }))
    }

    fn connect(&self, to: SocketAddr) -> io::Result<Connection> {
        let mut state = self.lock();
        let seed = state.cables.len() as u64;
        let (ours, mut theirs, cable) = connect_by(&state.adapters, Pace::AtOnce, seed);
        state.cables.push(cable.clone());
        if let Some(waiting) = state.ports.get(&to) {
            let connection = connection(theirs, &cable, 1)?;
            let accepted = Accepted { connection, local_address: to, peer_address: CLIENT.into() };
            waiting.requests.lock().unwrap().push_back(accepted);
            waiting.bell.ring();
        } else {
            // As a host answers at which nobody listens.
            while theirs.poll_event().is_some() {}
            let _ = theirs.reject(&[]);
        }
        connection(ours, &cable, 0)
    }
}

/// Where connections come in.
struct Port {
    fabric: Fabric,
    address: SocketAddr,
    waiting: Arc<Waiting>,
    ears: UnixStream,
}

impl Listener for Port {
    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn accept(&mut self) -> io::Result<Option<Accepted>> {
        let next = || self.waiting.requests.lock().unwrap().pop_front();
        Ok(next().or_else(|| {
            hear(&self.ears);
            next()
        }))
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ears.as_fd()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.fabric.lock().ports.remove(&self.address);
    }
}

/// What makes a descriptor readable.
struct Bell {
    mouth: UnixStream,
    is_silent: AtomicBool,
}

impl Bell {
    fn new() -> io::Result<(UnixStream, Arc<Bell>)> {
        let (ears, mouth) = UnixStream::pair()?;
        ears.set_nonblocking(true)?;
        mouth.set_nonblocking(true)?;
        Ok((ears, Arc::new(Bell { mouth, is_silent: AtomicBool::new(false) })))
    }

    fn ring(&self) {
        if !self.is_silent.load(Ordering::Acquire) {
            // One that is full is heard.
            let _ = (&self.mouth).write(&[0]);
        }
    }
}

fn hear(ears: &UnixStream) {
    let (mut ears, mut said) = (ears, [0; 64]);
    while ears.read(&mut said).is_ok_and(|count| count > 0) {}
}

/// An end with a descriptor.
struct Watched {
    end: End,
    ears: UnixStream,
    bell: Arc<Bell>,
}

fn connection(end: End, cable: &Cable, of: usize) -> io::Result<Connection> {
    let (ears, bell) = Bell::new()?;
    let events: OwnedFd = ears.try_clone()?.into();
    let rung = Arc::clone(&bell);
    cable.on_ready(of, Arc::new(move || rung.ring()));
    Ok(Connection { queue_pair: Box::new(Watched { end, ears, bell }), events })
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.bell.is_silent.store(true, Ordering::Release);
        hear(&self.ears);
    }
}

impl QueuePair for Watched {
    fn poll_event(&mut self) -> Option<Event> {
        self.end.poll_event().or_else(|| {
            // What is told from here on makes the descriptor readable again.
            hear(&self.ears);
            self.end.poll_event()
        })
    }

    fn accept(&mut self, private_data: &[u8]) -> Result<(), Refusal> {
        self.end.accept(private_data)
    }

    fn reject(&mut self, private_data: &[u8]) -> Result<(), Refusal> {
        self.end.reject(private_data)
    }

    fn order(&mut self, order: Order, id: Option<WorkId>) -> Result<(), Refused<Order>> {
        self.end.order(order, id)
    }

    fn read(
        &mut self,
        id: WorkId,
        frame: Frame,
        part: Range<usize>,
        source: Stag,
        source_offset: u64,
    ) -> Result<(), Refused<Frame>> {
        self.end.read(id, frame, part, source, source_offset)
    }

    fn limit_reads(&mut self, at_a_time: u16) {
        self.end.limit_reads(at_a_time);
    }

    fn register(&mut self, registration: Registration) -> Result<(Stag, u64), Refused<Registration>> {
        self.end.register(registration)
    }

    fn deregister(&mut self, stag: Stag) -> Option<Memory> {
        self.end.deregister(stag)
    }

    fn expect_messages(&mut self, count: usize, longest_bytes: usize) {
        self.end.expect_messages(count, longest_bytes);
    }

    fn disconnect(&mut self) {
        self.end.disconnect();
    }

    fn is_established(&self) -> bool {
        self.end.is_established()
    }

    fn invalidates(&self) -> bool {
        self.end.invalidates()
    }

    fn trouble(&self) -> Option<String> {
        self.end.trouble()
    }

    fn adapter(&self) -> Option<String> {
        self.end.adapter()
    }

    fn counts(&self) -> Counts {
        self.end.counts()
    }
}

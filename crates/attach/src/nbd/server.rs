//! Listens, and serves every client on threads of its own.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sanwire_initiator::{Volume, VolumeError, VolumeInfo};

use super::connection;
use super::handshake::Export;
use super::request::REQUEST_MAX_BYTES;
use super::socket::{Listener, NbdAddress, Socket};
use crate::bytes::ByteVolume;
use crate::executor::block_on;
use crate::growth::GrowthWatch;
use crate::latch::{Latch, wait_any};

/// Clients that are served together at the most; further ones are sent away.
const CONNECTIONS_MAX: usize = 64;

/// Why an NBD server could not start or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// Which address.
        address: NbdAddress,
        /// The kernel's word.
        source: io::Error,
    },
    /// The thread could not be started, or died.
    #[error("the NBD server's thread: {0}")]
    Thread(io::Error),
    /// The last flush failed: written data may be lost.
    #[error("the last flush failed, so what was written last may be lost: {0}")]
    Flush(VolumeError),
}

/// What to do when an address cannot be listened on.
fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; choose another address, or end the server that has it",
        io::ErrorKind::AddrNotAvailable => "; choose an address of this host",
        io::ErrorKind::NotFound => "; make the directory first, or choose another",
        io::ErrorKind::PermissionDenied => "; choose a directory that you may write to, or a port above 1023",
        _ => "",
    }
}

/// A running NBD server.
#[derive(Debug)]
pub struct NbdServer {
    address: NbdAddress,
    stop: Latch,
    thread: JoinHandle<Result<(), NbdError>>,
}

/// Serves the volume at `listen` until `stop` is set, perhaps for reading only, and counts its clients.
///
/// # Errors
/// When the address cannot be had.
pub fn serve_nbd(
    volume: Volume,
    is_read_only: bool,
    listen: &NbdAddress,
    stop: Latch,
    present: NbdClients,
) -> Result<NbdServer, NbdError> {
    let refused = |source| NbdError::Listen { address: listen.clone(), source };
    let listener = Listener::bind(listen).map_err(refused)?;
    let address = listener.address().map_err(refused)?;
    let name = volume.info().name;
    let told = move |_| tracing::warn!("the NBD clients of volume {name} see its new size when they connect again");
    let watch = GrowthWatch::start(volume.clone(), told).map_err(NbdError::Thread)?;
    let stopped = stop.clone();
    let thread = std::thread::Builder::new()
        .name("nbd-listener".into())
        .spawn(move || {
            let _watch = watch;
            accept_clients(&listener, &ByteVolume::new(volume, is_read_only), &stopped, &present)
        })
        .map_err(NbdError::Thread)?;
    Ok(NbdServer { address, stop, thread })
}

impl NbdServer {
    /// Where it listens, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> &NbdAddress {
        &self.address
    }

    /// Ends the server: what is in flight ends, the volume is flushed.
    ///
    /// # Errors
    /// When the last flush failed.
    pub fn stop(self) -> Result<(), NbdError> {
        self.stop.set();
        self.wait()
    }

    /// Waits for the end of the server, whatever ends it.
    ///
    /// # Errors
    /// When the last flush failed.
    pub fn wait(self) -> Result<(), NbdError> {
        self.thread.join().map_err(|_| NbdError::Thread(io::Error::other("it panicked")))?
    }
}

/// How many clients an NBD server has. Clones share it.
#[derive(Clone, Default, Debug)]
pub struct NbdClients(Arc<AtomicUsize>);

impl NbdClients {
    /// So many are connected.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn enter(&self) -> Presence {
        self.0.fetch_add(1, Ordering::Relaxed);
        Presence(self.clone())
    }
}

/// One client, until this is dropped.
struct Presence(NbdClients);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Client {
    socket: Arc<Socket>,
    thread: JoinHandle<()>,
}

fn accept_clients(
    listener: &Listener,
    volume: &ByteVolume,
    stop: &Latch,
    present: &NbdClients,
) -> Result<(), NbdError> {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        wait_any(&[listener.as_fd(), stop.as_fd()]);
        if stop.is_set() {
            break;
        }
        clients.retain(|client| !client.thread.is_finished());
        match listener.accept().and_then(|socket| admit(socket, volume, clients.len(), present.enter())) {
            Ok(client) => clients.push(client),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "an NBD client could not be served");
                // Out of descriptors or threads: the listener stays readable, so wait a moment.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    // No more requests; the answers still go out.
    clients.iter().for_each(|client| client.socket.shutdown(Shutdown::Read));
    for client in clients {
        let _ = client.thread.join();
    }
    if volume.info().read_only { Ok(()) } else { block_on(volume.flush()).map_err(NbdError::Flush) }
}

fn admit(socket: Socket, volume: &ByteVolume, others: usize, presence: Presence) -> io::Result<Client> {
    if others >= CONNECTIONS_MAX {
        return Err(io::Error::other("too many clients"));
    }
    let socket = Arc::new(socket);
    let (served, volume) = (Arc::clone(&socket), volume.clone());
    let thread = std::thread::Builder::new().name("nbd-reader".into()).spawn(move || {
        let _presence = presence;
        let export = export_of(&volume.info());
        if let Err(error) = connection::serve(&served, &volume, export) {
            tracing::info!(%error, "an NBD client's connection ended");
        }
    })?;
    Ok(Client { socket, thread })
}

fn export_of(info: &VolumeInfo) -> Export {
    let block_min_bytes = info.block_bytes;
    Export {
        name: info.name.to_string(),
        size_bytes: info.size_bytes,
        read_only: info.read_only,
        discards: info.discards,
        block_min_bytes,
        block_preferred_bytes: info.physical_block_bytes.max(4096).max(block_min_bytes).next_power_of_two(),
        request_max_bytes: REQUEST_MAX_BYTES,
    }
}

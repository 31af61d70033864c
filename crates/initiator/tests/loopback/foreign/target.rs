//! A target with one unit, whose answers a test makes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use sanwire_buffer::{Packet, Region};
use sanwire_core::{Instant, NexusId};
use sanwire_iscsi::{
    Admission, Admitted, Authentication, ConnectionId, Directory, IscsiName, LoginOutcome, LoginRefusal, Portal,
    PortalCarrier, Server, ServerConfig, ServerEvent, ServerLogin, TargetEntry, TargetId,
};
use sanwire_scsi::{Reply, Task};

/// What it is called.
pub const NAME: &str = "iqn.2026-11.org.example:foreign";

const CONNECTION: ConnectionId = ConnectionId(1);

/// It stands still: nothing here waits for time.
const NOW: Instant = Instant::ZERO;

struct OneTarget;

impl Directory for OneTarget {
    fn target(&self, _: &IscsiName, _: &IscsiName, _: IpAddr, _: &Portal) -> Result<TargetEntry, LoginRefusal> {
        Ok(TargetEntry {
            id: TargetId(1),
            alias: String::new(),
            authentication: Authentication::default(),
            requires_digests: false,
            redirect: None,
        })
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), _: &str) -> bool {
        true
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> Result<Authentication, LoginRefusal> {
        Ok(Authentication::default())
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, _: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        Vec::new()
    }
}

/// Starts it, and gives its portal. It serves one connection after the other until the test ends; a command without an answer
/// ends one.
pub fn start(answer: impl Fn(&Task) -> Option<Reply> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            drop(converse(stream, address, &answer));
        }
    });
    address
}

fn converse(mut stream: TcpStream, address: SocketAddr, answer: &dyn Fn(&Task) -> Option<Reply>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(admitted) = log_in(&mut stream, address)? else { return Ok(()) };
    let memory = Region::new(4 << 20)?;
    let directory = Arc::new(OneTarget);
    let mut server = Server::new(ServerConfig { memory, directory, commands_max: 32, transfer_max_bytes: 1 << 20 });
    server.admit(CONNECTION, *admitted, Admission { tsih: 1, nexus: NexusId(1) }, NOW);
    let mut input = [0; 4096];
    loop {
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Command { handle, task, .. } = event {
                let Some(reply) = answer(&task) else { return Ok(()) };
                server.reply(handle, reply, NOW);
            }
        }
        while let Some(packet) = server.poll_transmit(CONNECTION) {
            send(&mut stream, &packet)?;
        }
        let count = stream.read(&mut input)?;
        if count == 0 {
            return Ok(());
        }
        take(&mut server, &input[..count]);
    }
}

fn log_in(stream: &mut TcpStream, address: SocketAddr) -> io::Result<Option<Box<Admitted>>> {
    let portal = Portal { address, group_tag: 1, carrier: PortalCarrier::Tcp };
    let mut login = ServerLogin::new(portal, address.ip(), [1; 32], NOW);
    let mut input = [0; 4096];
    loop {
        let count = stream.read(&mut input)?;
        login.handle_input(&input[..count], &OneTarget, NOW);
        while let Some(packet) = login.poll_transmit() {
            send(stream, &packet)?;
        }
        match login.poll_outcome() {
            Some(LoginOutcome::Admitted(admitted)) => return Ok(Some(admitted)),
            None if count > 0 => {}
            _ => return Ok(None),
        }
    }
}

fn send(stream: &mut TcpStream, packet: &Packet) -> io::Result<()> {
    stream.write_all(&packet.head)?;
    stream.write_all(packet.payload.as_deref().unwrap_or(&[]))
}

/// Hands bytes over, wherever they belong.
fn take(server: &mut Server, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let mut taken = 0;
        for space in server.spaces(CONNECTION) {
            let count = space.len().min(bytes.len() - taken);
            space[..count].copy_from_slice(&bytes[taken..taken + count]);
            taken += count;
        }
        if taken == 0 {
            return;
        }
        server.filled(CONNECTION, taken, NOW);
        bytes = &bytes[taken..];
    }
}

//! VISA: what its paper measures, in the same shape; its wires beside HyperSCSI over IP; and what derived volumes and their programs
//! cost.

mod derived;
mod device;
mod filter;
mod mounts;
mod programs;
mod wires;

use anyhow::Result;

use crate::bed::Bed;
use crate::link::{Link, SECOND_SERVER_ADDRESS, SERVER_ADDRESS};
use crate::report::{Outcome, Section};
use crate::run::Settings;
use crate::servers::{Files, VOLUME_BYTES, Wire, fill_volume};

/// In the place of Myrinet, whose packets take 8 KiB whole.
const LARGE_BYTES: u32 = 9000;
/// In the place of Ethernet.
const SMALL_BYTES: u32 = 1500;
/// The server's, on both links.
const WIRES: [Wire; 4] = [
    Wire::Visa(SERVER_ADDRESS),
    Wire::IpOn(SERVER_ADDRESS),
    Wire::Visa(SECOND_SERVER_ADDRESS),
    Wire::IpOn(SECOND_SERVER_ADDRESS),
];
/// Clients choose what they want of it.
const EITHER: [&str; 4] = ["--visa-mode", "either", "--visa-checksum", "either"];
/// As in 1998: without a check either.
const CLASSIC: &str = " --visa-mode classic --visa-checksum off";
const DISK: &str = "disk";

/// How a client speaks with the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Modern,
    Classic,
    Tcp,
    HyperScsi,
}

impl Way {
    const ALL: [Way; 4] = [Way::Modern, Way::Classic, Way::Tcp, Way::HyperScsi];

    fn name(self) -> &'static str {
        match self {
            Way::Modern => "VISA",
            Way::Classic => "VISA classic",
            Way::Tcp => "VISA TCP",
            Way::HyperScsi => "HS/IP",
        }
    }

    /// By the link with this MTU.
    fn wire(self, mtu_bytes: u32) -> Wire {
        let address = if mtu_bytes == LARGE_BYTES { SERVER_ADDRESS } else { SECOND_SERVER_ADDRESS };
        match self {
            Way::Modern | Way::Classic => Wire::Visa(address),
            Way::Tcp => Wire::VisaTcp(address),
            Way::HyperScsi => Wire::IpOn(address),
        }
    }

    /// What the client is told besides.
    fn options(self) -> &'static str {
        if self == Way::Classic { CLASSIC } else { "" }
    }
}

/// All of it, one section after the other.
///
/// # Errors
/// When a server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let mounts = mounts::measure(settings, files)?;
    let picture = (!mounts.rows.is_empty()).then(|| mounts::picture(&mounts.rows));
    let mut sections = vec![mounts];
    if wires::is_wanted(settings) || programs::is_wanted(settings) {
        sections.extend(measure_pinned(settings, files)?);
    }
    sections.push(device::measure(settings)?);
    let (derived, numbers) = derived::measure(settings, files)?;
    sections.push(derived);
    Ok(Outcome { picture, idle: numbers, ..Section::all("visa", sections) })
}

/// What is measured with a processor for the client and one for the server.
fn measure_pinned(settings: &Settings, files: &Files) -> Result<[Section; 2]> {
    let link = link()?;
    let module = files.path("filter.wasm");
    filter::write(&module)?;
    let volumes = [
        format!("{DISK}=ram:{VOLUME_BYTES},security=none"),
        format!("{}=dvd:{DISK},principal=any", programs::PLAIN),
        format!("{}=dvd:{DISK},principal=any,program={module}", programs::JUDGED),
    ];
    let bed = Bed::with(settings, &link, files, &WIRES, &volumes, &EITHER)?;
    fill_volume(&bed.host, &settings.programs[0], files, &WIRES[1].url(DISK))?;
    Ok([wires::measure(settings, &bed)?, programs::measure(settings, &bed)?])
}

/// Both hosts, with both links.
fn link() -> Result<Link> {
    let link = Link::new(LARGE_BYTES)?;
    link.add_second_network(SMALL_BYTES)?;
    Ok(link)
}

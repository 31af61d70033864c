//! What a start would miss on this host. Nothing is opened, made or bound for it but a socket at a port that the kernel chooses.

use std::fmt::Display;
use std::fs::{self, Metadata};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Access, access};
use sanwire_core::DeviceType;
use sanwire_server::{PoolConfig, check_module_file, obstacles_of_layers, program_of};
use sanwire_store::VolumeSpec;
use sanwire_store::kind::Place;
use sanwire_web::WebAddress;

use super::ServeConfig;
use crate::{keys, rdma};

impl ServeConfig {
    /// Why a server could not be started so on this host now, a line for each reason.
    pub(crate) fn obstacles(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.wires.iter().filter_map(wire).collect();
        lines.extend(self.pools.iter().filter_map(pool));
        lines.extend(self.volumes.iter().filter_map(|volume| self.pool_of(volume)));
        // The directory of the default volume is made when it is missing.
        lines.extend(self.volumes.iter().filter(|_| self.make_directory.is_none()).filter_map(volume));
        lines.extend(obstacles_of_layers(&self.pools, &self.volumes));
        lines.extend(self.volumes.iter().filter_map(program));
        lines.extend(self.key_file.exists().then(|| key(&self.key_file)).flatten());
        lines.extend(self.secret_file.as_deref().and_then(key));
        lines.extend(self.clients.iter().filter_map(|client| client.key_file().and_then(key)));
        lines.extend(self.web.addresses.iter().filter_map(http));
        lines.extend(self.web.look().err().map(|error| error.to_string()));
        lines
    }

    /// Why a volume is in no pool that names one.
    fn pool_of(&self, volume: &VolumeSpec) -> Option<String> {
        let named = volume.pool()?.pool.as_ref();
        let has_default = self.pools.len() == 1 || self.pools.iter().any(|pool| pool.is_default);
        let is_there = named.map_or(has_default, |named| self.pools.iter().any(|pool| pool.name == *named));
        let which = named.map_or("default pool".to_owned(), |named| format!("pool called {named}"));
        (!is_there).then(|| format!("volume {}: there is no {which}", volume.name))
    }
}

fn pool(pool: &PoolConfig) -> Option<String> {
    let writable = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    let reason = match fs::metadata(&pool.directory) {
        Ok(metadata) if !metadata.is_dir() => "it is no directory".to_owned(),
        Ok(_) => format!("{}; this user needs to read and write it", access(&pool.directory, writable).err()?),
        Err(error) => format!("{error}; mount its file system, or make it"),
    };
    Some(format!("pool {}: {}: {reason}", pool.name, pool.directory.display()))
}

fn wire(wire: &super::Wire) -> Option<String> {
    if let Some(interface) = wire.interface() {
        let is_there = Path::new("/sys/class/net").join(interface).exists();
        return (!is_there)
            .then(|| format!("{wire}: this host has no interface {interface}: `ip link` lists those it has"));
    }
    let by_adapter = wire.is_by_adapter().then(rdma::adapters);
    if let Some(Err(error)) = by_adapter.map(|adapters| adapters.check()) {
        return Some(format!("{wire}: {error}"));
    }
    missing_address(wire, wire.address()?.ip())
}

fn http(address: &WebAddress) -> Option<String> {
    let WebAddress::Tcp(place) = address else { return None };
    missing_address(&format!("http {address}"), place.ip())
}

fn missing_address(of: &dyn Display, ip: IpAddr) -> Option<String> {
    let error = UdpSocket::bind(SocketAddr::new(ip, 0)).err()?;
    Some(format!("{of}: this host cannot listen at {ip} ({error}): `ip address` lists its addresses"))
}

fn volume(volume: &VolumeSpec) -> Option<String> {
    let Place::File(path) = volume.store.backing.place() else { return None };
    let reason = match fs::metadata(path) {
        Ok(metadata) => match unusable(volume, path, &metadata) {
            Some(reason) => reason,
            None => return misfit(volume, &metadata),
        },
        Err(_) if volume.size_bytes().is_some() => unmakable(path)?,
        Err(error) => format!("{error}; give it size=, and it is made"),
    };
    Some(format!("volume {}: {}: {reason}", volume.name, path.display()))
}

/// Why the program of a volume cannot be used.
fn program(volume: &VolumeSpec) -> Option<String> {
    let file = program_of(volume)?;
    let reason = check_module_file(file).err()?;
    Some(format!("volume {}: its program {}: {reason}", volume.name, file.display()))
}

fn unusable(volume: &VolumeSpec, path: &Path, metadata: &Metadata) -> Option<String> {
    if !metadata.is_file() && !metadata.file_type().is_block_device() {
        return Some("it is neither a file nor a block device".into());
    }
    let wanted = if volume.store.read_only { Access::READ_OK } else { Access::READ_OK | Access::WRITE_OK };
    let error = access(path, wanted).err()?;
    Some(format!("{error}; this user needs to read{} it", if volume.store.read_only { "" } else { " and write" }))
}

/// Why a file cannot be served with the length that it has.
fn misfit(volume: &VolumeSpec, metadata: &Metadata) -> Option<String> {
    if !metadata.is_file() || volume.device_type == DeviceType::Optical {
        return None;
    }
    let error = volume.store.backing.check_length(metadata.len()).err()?;
    Some(format!("volume {}: {error}", volume.name))
}

/// Why a file that is missing cannot be made.
fn unmakable(path: &Path) -> Option<String> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let error = access(directory, Access::WRITE_OK | Access::EXEC_OK).err()?;
    Some(format!("it cannot be made in {}: {error}", directory.display()))
}

fn key(file: &Path) -> Option<String> {
    keys::secret(file).err().map(|error| error.to_string())
}

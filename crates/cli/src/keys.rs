//! Static keys in files, and the shared secret that a password makes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;
use argon2::{Algorithm, Argon2, Params, Version};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
pub(crate) use sanwire_hyperscsi::NO_PASSWORD;
use sanwire_hyperscsi::{Identity, Psk, random};

use crate::config::{Password, is_credential};
use crate::failure::misuse;

/// The salt of every password. Nothing that a handshake says lets a guess be tested without another handshake, so who has stretched
/// many beforehand has gained next to nothing.
const SALT: &[u8] = b"sanwire hyperscsi psk";

/// The cost of Argon2id (RFC 9106 4, second recommendation): memory in KiB, passes, lanes.
const COST: (u32, u32, u32) = (64 << 10, 3, 4);

const KEY_BYTES: usize = 32;

/// The secret that a password makes, by Argon2id.
pub(crate) fn psk(password: &Password) -> anyhow::Result<Psk> {
    let (memory_kib, passes, lanes) = COST;
    let params = Params::new(memory_kib, passes, lanes, Some(KEY_BYTES))
        .map_err(|error| anyhow::anyhow!("Argon2 refuses its parameters: {error}"))?;
    let mut psk = NO_PASSWORD;
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(password.as_bytes(), SALT, &mut psk)
        .map_err(|error| anyhow::anyhow!("Argon2 cannot derive the secret: {error}"))?;
    Ok(psk)
}

/// The identity in the file; a new one is drawn and kept there when the file is absent.
pub(crate) fn load_or_make(path: &Path) -> anyhow::Result<Identity> {
    let private = match File::open(path) {
        Ok(file) => read(path, file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path)?,
        Err(error) => return Err(misuse(format!("cannot read the key file {}: {error}", path.display()))),
    };
    Identity::from_private(private).with_context(|| format!("the key file {}", path.display()))
}

/// The secret in a key file, which both ends share.
pub(crate) fn secret(path: &Path) -> anyhow::Result<Psk> {
    let file =
        File::open(path).map_err(|error| misuse(format!("cannot read the secret file {}: {error}", path.display())))?;
    read(path, file)
}

/// Makes a key file that is not there yet.
pub(crate) fn make_new(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        let shown = path.display();
        return Err(misuse(format!(
            "{shown} is there already: choose another name, or remove it if nobody needs its key"
        )));
    }
    make(path).map(drop)
}

/// A key as people read it.
pub(crate) fn hexadecimal(key: &[u8; KEY_BYTES]) -> String {
    HEXLOWER.encode(key)
}

fn read(path: &Path, file: File) -> anyhow::Result<[u8; KEY_BYTES]> {
    let shown = path.display();
    let unreadable = |error| misuse(format!("cannot read the key file {shown}: {error}"));
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(misuse(format!("{shown} is a directory, and no key file: move it away to have one made")));
    }
    let mode = metadata.mode();
    if mode & 0o077 != 0 && !is_credential(path) {
        return Err(misuse(format!(
            "others can read the key file {shown} (mode {:o}): chmod 600 {shown}",
            mode & 0o777
        )));
    }
    let mut text = Vec::new();
    file.take(256).read_to_end(&mut text).map_err(unreadable)?;
    parse(String::from_utf8_lossy(&text).trim()).ok_or_else(|| {
        misuse(format!(
            "{shown} is no key file: it should hold {} hexadecimal digits; put back a copy, or remove it to have another one made",
            2 * KEY_BYTES
        ))
    })
}

/// A key as [`hexadecimal`] writes it.
pub(crate) fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    let is_whole = text.len() == 2 * KEY_BYTES && HEXLOWER_PERMISSIVE.decode_mut(text.as_bytes(), &mut key).is_ok();
    is_whole.then_some(key)
}

fn make(path: &Path) -> anyhow::Result<[u8; KEY_BYTES]> {
    let unwritable = || format!("cannot make the key file {}", path.display());
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(unwritable)?;
    }
    let key: [u8; KEY_BYTES] = random()?;
    let text = format!("{}\n", hexadecimal(&key));
    // Written aside and linked into place: two programs that start together agree on the first one's key.
    let aside = path.with_extension(format!("new-{}", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside).with_context(unwritable)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(unwritable)?;
    let linked = fs::hard_link(&aside, path);
    fs::remove_file(&aside).with_context(unwritable)?;
    match linked {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(path, File::open(path).with_context(unwritable)?)
        }
        Err(error) => Err(error).with_context(unwritable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read_password;
    use std::os::unix::fs::PermissionsExt;

    /// The value is that of another implementation: `argon2.low_level.hash_secret_raw(b"correct horse battery staple",
    /// b"sanwire hyperscsi psk", time_cost=3, memory_cost=65536, parallelism=4, hash_len=32, type=Type.ID)` of argon2-cffi.
    #[test]
    fn a_password_makes_the_secret_that_it_made_in_every_version() {
        let path = std::env::temp_dir().join(format!("sanwire-password-{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(b"correct horse battery staple\n").unwrap();
        let secret = psk(&read_password(&path).unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(hexadecimal(&secret), "4e3a0fb2b7ff4ebfaae75a46f0d1272cb0a15af6edd9757b753a1c3734bb5de4");
    }

    #[test]
    fn a_key_is_made_once_and_kept() {
        let directory = std::env::temp_dir().join(format!("sanwire-keys-{}", std::process::id()));
        let path = directory.join("state/server.key");
        let first = load_or_make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(load_or_make(&path).unwrap().client_id(), first.client_id());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load_or_make(&path).unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short").unwrap();
        assert!(load_or_make(&path).unwrap_err().to_string().contains("64 hexadecimal digits"));
        fs::remove_dir_all(directory).unwrap();
    }
}

//! Which clients of clusters this process is: an image that it has open itself is not another server's.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::image::ImageName;

/// Their addresses with their nonces, as clusters tell them. Each image has a connection of its own.
static CLIENTS: Mutex<BTreeSet<(String, ImageName)>> = Mutex::new(BTreeSet::new());

/// The client that has an image, for as long as this lives.
#[derive(Debug)]
pub(crate) struct OwnClient(String, ImageName);

impl OwnClient {
    /// The cluster calls it so.
    pub(crate) fn begin(owner: String, name: &ImageName) -> OwnClient {
        lock().insert((owner.clone(), name.clone()));
        OwnClient(owner, name.clone())
    }
}

impl Drop for OwnClient {
    fn drop(&mut self) {
        lock().remove(&(self.0.clone(), self.1.clone()));
    }
}

/// Whether the owner of this image's lock, as the cluster calls it (`10.0.0.1:0/4123`), is one of this process.
pub(crate) fn is_client(owner: &str, name: &ImageName) -> bool {
    lock().contains(&(owner.to_owned(), name.clone()))
}

fn lock() -> MutexGuard<'static, BTreeSet<(String, ImageName)>> {
    // Nothing panics while it is locked.
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_client_is_known_by_its_address_and_its_image_while_it_lives() {
        let [image, other] = ["own/image", "own/other"].map(|name| name.parse::<ImageName>().unwrap());
        let (here, there) = ("10.0.0.1:0/4123", "10.0.0.1:0/4124");
        let client = OwnClient::begin(here.to_owned(), &image);
        assert!(is_client(here, &image));
        assert!(!is_client(here, &other) && !is_client(there, &image) && !is_client("unknown", &image));
        drop(client);
        assert!(!is_client(here, &image));
    }
}

//! A connection that changes while its volumes are used.

use sanwire_buffer::Slice;
use sanwire_core::Protection;
use sanwire_hyperscsi::DesiredOptions;
use sanwire_initiator::Client;
use sanwire_server::Server;

use crate::{config, options, url};

#[test]
fn what_was_cut_before_the_largest_transfer_became_smaller_is_read_and_written_all_the_same() {
    let target = Server::start(config(&["ram0=ram:16M"])).unwrap();
    let mut client = Client::connect(&url(&target, "ram0"), &options()).unwrap();
    let volume = client.open("ram0").unwrap();
    let length = volume.info().transfer_max_bytes as usize;
    let wishes = DesiredOptions { transfer_max_bytes: Some(65_536), ..DesiredOptions::default() };
    client.wishes().wish(wishes, Protection::Checksum).unwrap();
    client.block_on(async {
        while volume.info().transfer_max_bytes != 65_536 {
            volume.flush().await.unwrap();
        }
        let data = Slice::from(vec![7; length]);
        volume.write(0, data.clone()).await.unwrap();
        let back = volume.read(0, volume.buffer(length).await.unwrap()).await.unwrap();
        assert!(*back == *data, "{length} bytes");
    });
    drop((volume, client));
    target.stop().unwrap();
}

//! Reads and writes a volume through the library: `cargo run --example volume -- hs+ip://127.0.0.1/disk0`.
//!
//! It writes a greeting into the volume's last block, makes it stable, reads it again, and puts the old content back.

use std::error::Error;

use sanwire_initiator::{Client, ClientOptions, Url, VolumeError};

fn main() -> Result<(), Box<dyn Error>> {
    let url: Url = std::env::args().nth(1).ok_or("usage: volume URL")?.parse()?;
    // The thread that calls `block_on` drives the connection; no runtime is needed.
    let mut client = Client::connect(&url, &ClientOptions::anonymous()?)?;
    let volume = client.open(url.volume()?)?;
    let info = volume.info();
    println!("{}: {} bytes in blocks of {}, over {}", info.name, info.size_bytes, info.block_bytes, info.wire);

    let last = info.size_bytes - u64::from(info.block_bytes);
    let greeting = client.block_on(async {
        let block = info.block_bytes as usize;
        let old = volume.read(last, volume.buffer(block).await?).await?.freeze();

        let mut frame = volume.buffer(block).await?;
        frame.fill(0);
        frame[..5].copy_from_slice(b"hello");
        volume.write(last, frame.freeze()).await?;
        volume.flush().await?;
        let read = volume.read(last, volume.buffer(block).await?).await?;

        volume.write_stable(last, old).await?;
        Ok::<_, VolumeError>(String::from_utf8_lossy(&read[..5]).into_owned())
    })?;
    println!("the last block said: {greeting}");
    Ok(())
}

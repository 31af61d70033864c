//! A plain stream of blocks over TCP: what the link carries by TCP when nothing is asked for and nothing is made of it but copies
//! between the socket and a memory as large as the volumes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use sanwire_buffer::{Arena, Frame};

use crate::load::MIB;
use crate::servers::VOLUME_BYTES;

/// The memory lies in large pages, as that of RAM volumes.
const PIECE_BYTES: usize = 2 << 20;

/// `sanwire-bench stream`.
#[derive(Args, Debug)]
pub(crate) struct StreamArgs {
    /// Where `sanwire-bench stream-server` listens
    address: SocketAddr,
    /// Bytes of a block, a power of two of at most 2 MiB
    #[arg(long)]
    block: u32,
    /// Send them, instead of having them sent
    #[arg(long)]
    write: bool,
    #[arg(long, default_value = "1")]
    seconds: f64,
}

/// `sanwire-bench stream-server`.
#[derive(Args, Debug)]
pub(crate) struct StreamServerArgs {
    /// Where to listen
    address: SocketAddr,
}

/// Serves one client after the other until it is killed.
///
/// # Errors
/// When there is no memory, or the address cannot be had.
pub(crate) fn serve(args: &StreamServerArgs) -> Result<()> {
    let mut memory = Memory::new(VOLUME_BYTES)?;
    let listener = TcpListener::bind(args.address)?;
    loop {
        if let Err(error) = memory.serve(&mut listener.accept()?.0) {
            eprintln!("sanwire-bench: {error:#}");
        }
    }
}

/// Measures and prints one line of JSON.
///
/// # Errors
/// When the server is not there, or ends.
pub(crate) fn run(args: &StreamArgs) -> Result<()> {
    let stream = TcpStream::connect(args.address)?;
    let (blocks, elapsed) = transfer(stream, args.block, args.write, Duration::from_secs_f64(args.seconds))?;
    let iops = blocks as f64 / elapsed.as_secs_f64();
    let mib_per_s = iops * f64::from(args.block) / MIB;
    println!("{}", serde_json::json!({ "blocks": blocks, "iops": iops, "mib_per_s": mib_per_s }));
    Ok(())
}

/// Has blocks sent, or sends them, for so long; how many have arrived at the other end in which time.
fn transfer(mut stream: TcpStream, block: u32, is_write: bool, time: Duration) -> Result<(u64, Duration)> {
    stream.set_nodelay(true)?;
    stream.write_all(&[u8::from(is_write)])?;
    stream.write_all(&block.to_be_bytes())?;
    let mut data = vec![0x5a; block as usize];
    let start = Instant::now();
    let mut blocks = 0;
    while start.elapsed() < time {
        if is_write {
            stream.write_all(&data)?;
        } else {
            stream.read_exact(&mut data)?;
        }
        blocks += 1;
    }
    if is_write {
        // What is on its way counts when it is there.
        stream.shutdown(Shutdown::Write)?;
        let mut count = [0; 8];
        stream.read_exact(&mut count)?;
        blocks = u64::from_be_bytes(count);
    }
    Ok((blocks, start.elapsed()))
}

/// What blocks are read from and written to, one after the other.
struct Memory(Vec<Frame>);

impl Memory {
    fn new(length_bytes: u64) -> Result<Self> {
        let (arena, content) = (Arena::new(PIECE_BYTES, 0), vec![0x5a; PIECE_BYTES]);
        let pieces = (0..length_bytes / PIECE_BYTES as u64).map(|_| arena.copied(&content));
        Ok(Memory(pieces.collect::<Option<_>>().context("no memory")?))
    }

    /// A client, until it has enough.
    fn serve(&mut self, stream: &mut TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut question = [0; 5];
        stream.read_exact(&mut question)?;
        let [is_write, block @ ..] = question;
        let block = u32::from_be_bytes(block) as usize;
        ensure!(block.is_power_of_two() && block <= PIECE_BYTES, "blocks of {block} bytes");
        let mut blocks = 0u64;
        loop {
            for place in self.0.iter_mut().flat_map(|piece| piece.chunks_exact_mut(block)) {
                let passed = if is_write != 0 { stream.read_exact(place) } else { stream.write_all(place) };
                match passed {
                    Ok(()) => blocks += 1,
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        return Ok(stream.write_all(&blocks.to_be_bytes())?);
                    }
                    Err(_) if is_write == 0 => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_pass_both_ways_and_are_counted_where_they_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut memory = Memory::new(PIECE_BYTES as u64)?;
            (0..2).try_for_each(|_| memory.serve(&mut listener.accept()?.0))
        });
        for is_write in [false, true] {
            let stream = TcpStream::connect(address).unwrap();
            let (blocks, elapsed) = transfer(stream, 1 << 20, is_write, Duration::from_millis(20)).unwrap();
            assert!(blocks > 0 && elapsed >= Duration::from_millis(20), "{blocks} in {elapsed:?}");
        }
        server.join().unwrap().unwrap();
    }
}

//! Writes functions: valid ones, of all that can be decoded, as some bytes decide. They end, or run out of fuel.

const TYPES: [&str; 2] = ["i32", "i64"];
const BINARY: [&str; 11] = ["add", "sub", "mul", "and", "or", "xor", "shl", "shr_s", "shr_u", "rotl", "rotr"];
const COMPARING: [&str; 10] = ["eq", "ne", "lt_s", "lt_u", "gt_s", "gt_u", "le_s", "le_u", "ge_s", "ge_u"];
const DIVIDING: [&str; 4] = ["div_s", "div_u", "rem_s", "rem_u"];
const UNARY: [&[&str]; 2] = [
    &["i32.clz", "i32.ctz", "i32.popcnt", "i32.extend8_s", "i32.extend16_s", "i32.eqz"],
    &["i64.clz", "i64.ctz", "i64.popcnt", "i64.extend8_s", "i64.extend16_s", "i64.extend32_s"],
];
const LOADS: [&[&str]; 2] = [
    &["load", "load8_s", "load8_u", "load16_s", "load16_u"],
    &["load", "load8_s", "load8_u", "load16_s", "load16_u", "load32_s", "load32_u"],
];
const STORES: [&[&str]; 2] = [&["store", "store8", "store16"], &["store", "store8", "store16", "store32"]];
const NUMBERS: [i64; 12] = [0, 1, 2, 3, 7, 31, 64, 255, 65_535, 0x7fff_ffff, -1, -0x8000_0000];

/// What a function may use beside its parameters and the memory.
pub(super) const PARTS: &str = "
    (global $g0 (mut i32) (i32.const 5)) (global $g1 (mut i64) (i64.const -5)) (global $known i32 (i32.const 9))
    (func $sum (param i32 i64) (result i32) (local i32)
        (if (i32.lt_u (local.get 0) (i32.const 3)) (then (return (i32.add (local.get 2) (i32.const 4)))))
        (local.set 2 (i32.wrap_i64 (local.get 1)))
        (local.set 0 (i32.add (local.get 2) (local.get 0)))
        (drop (br_if 0 (i32.mul (local.get 0) (local.get 2)) (i32.and (local.get 2) (i32.const 1))))
        (i32.xor (local.get 0) (local.get 2)))
    (func $note (param i32)
        (block (br_if 1 (i32.eqz (local.get 0))) (global.set $g0 (i32.add (global.get $g0) (i32.const 1)))))
    (func $nested (param i64) (result i64)
        (call $note (i32.wrap_i64 (local.get 0)))
        (i64.extend_i32_u (call $sum (i32.const 5) (i64.add (local.get 0) (i64.const 3)))))
    (func $fails (param i32) (loop (br_if 0 (local.tee 0 (i32.shr_u (local.get 0) (i32.const 1))))) (unreachable))";
/// The local variables of a function without parameters: two of 32 bits, and two of 64.
pub(super) const LOCALS: &str = "(local i32 i32 i64 i64)";

/// One who writes by the bytes that are given.
pub(super) struct Author<'a> {
    bytes: std::slice::Iter<'a, u8>,
    /// Whether a value comes with a branch to each block around, from the inside on the last.
    blocks: Vec<Option<usize>>,
    /// The numbers of local variables, by their types.
    locals: [[u32; 2]; 2],
}

impl Author<'_> {
    pub(super) fn new(bytes: &[u8], locals: [[u32; 2]; 2]) -> Author<'_> {
        Author { bytes: bytes.iter(), blocks: vec![], locals }
    }

    /// The body of a function that returns an i32.
    pub(super) fn function(&mut self) -> String {
        let mut body = String::new();
        while self.bytes.len() > 8 {
            body += &self.statement(3);
        }
        body + &self.value(0, 2)
    }

    fn choose(&mut self, of: usize) -> usize {
        self.bytes.next().map_or(0, |byte| usize::from(*byte) % of)
    }

    fn one_of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.choose(all.len())]
    }

    fn local(&mut self, of: usize) -> u32 {
        let which = self.choose(2);
        self.locals[of][which]
    }

    fn statement(&mut self, depth: usize) -> String {
        let of = self.choose(2);
        let (ty, inner) = (TYPES[of], depth.saturating_sub(1));
        match self.choose(if depth == 0 { 5 } else { 14 }) {
            0 | 1 => format!("(local.set {} {})", self.local(of), self.value(of, inner)),
            2 => format!("(global.set $g{of} {})", self.value(of, inner)),
            3 => {
                let (store, address) = (self.one_of(STORES[of]), self.address(inner));
                format!("({ty}.{store} {address} {})", self.value(of, inner))
            }
            4 => format!("(drop {})", self.value(of, inner)),
            5 | 6 => format!("(if {} {})", self.condition(inner), self.side("then", None, inner)),
            7 => {
                let (condition, then) = (self.condition(inner), self.side("then", None, inner));
                format!("(if {condition} {then} {})", self.side("else", None, inner))
            }
            8 => self.side("block", None, inner),
            9 => self.side("loop", None, inner),
            10 => self.branch(inner),
            11 => self.by_table(inner),
            12 => match self.choose(8) {
                0 => "(nop)".into(),
                1 => format!("(if {} (then (call $fails {})))", self.condition(inner), self.value(0, inner)),
                _ => format!("(call $note {})", self.value(0, inner)),
            },
            _ if self.choose(4) == 0 => self.one_of(&["(unreachable)", "(return (i32.const 1))"]).into(),
            _ => self.by_condition(inner),
        }
    }

    /// Statements within a block, and a value if it has one.
    fn side(&mut self, block: &str, of: Option<usize>, depth: usize) -> String {
        // A branch to a loop takes no value.
        self.blocks.push(of.filter(|_| block != "loop"));
        let statements: String = (0..self.choose(3)).map(|_| self.statement(depth)).collect();
        let value = of.map_or(String::new(), |of| self.value(of, depth));
        self.blocks.pop();
        let result = of.filter(|_| block != "then" && block != "else");
        let result = result.map_or(String::new(), |of| format!("(result {})", TYPES[of]));
        format!("({block} {result} {statements} {value})")
    }

    /// A block around, and the value that a branch to it takes.
    fn target(&mut self, depth: usize) -> Option<(usize, String)> {
        let count = self.blocks.len();
        let distance = self.choose(count.max(1));
        let of = *self.blocks.get(count.checked_sub(1 + distance)?)?;
        Some((distance, of.map_or(String::new(), |of| self.value(of, depth))))
    }

    fn branch(&mut self, depth: usize) -> String {
        self.target(depth).map_or(String::new(), |(distance, value)| format!("(br {distance} {value})"))
    }

    fn by_condition(&mut self, depth: usize) -> String {
        let condition = self.condition(depth);
        let Some((distance, value)) = self.target(depth) else { return String::new() };
        let branch = format!("(br_if {distance} {value} {condition})");
        if value.is_empty() { branch } else { format!("(drop {branch})") }
    }

    fn by_table(&mut self, depth: usize) -> String {
        let fit = (0..self.blocks.len()).filter(|distance| self.blocks[self.blocks.len() - 1 - distance].is_none());
        let fit: Vec<usize> = fit.collect();
        if fit.is_empty() {
            return String::new();
        }
        let targets: String = (0..=self.choose(3)).map(|_| format!("{} ", fit[self.choose(fit.len())])).collect();
        format!("(br_table {targets} (i32.and {} (i32.const 3)))", self.condition(depth))
    }

    /// A value that nobody knows before.
    fn condition(&mut self, depth: usize) -> String {
        match self.choose(6) {
            0 => format!("(i32.eqz {})", self.local_value(0)),
            1 => format!("(i32.and {} {})", self.local_value(0), self.value(0, depth)),
            // Nearly.
            2 if self.choose(64) == 0 => self.value(0, depth),
            _ => {
                let (of, compare) = (self.choose(2), self.one_of(&COMPARING));
                let (one, other) = (self.local_value(of), self.value(of, depth));
                let (one, other) = if self.choose(2) == 0 { (one, other) } else { (other, one) };
                let compared = format!("({}.{compare} {one} {other})", TYPES[of]);
                if self.choose(4) == 0 { format!("(i32.eqz {compared})") } else { compared }
            }
        }
    }

    fn local_value(&mut self, of: usize) -> String {
        format!("(local.get {})", self.local(of))
    }

    /// Mostly within the memory.
    fn address(&mut self, depth: usize) -> String {
        let offset = ["", "offset=1 ", "offset=4096 ", "offset=65528 "][self.choose(4)];
        match self.choose(8) {
            0 => format!("{offset}{}", self.local_value(0)),
            1 => format!("{}(i32.const {})", if offset.len() > 12 { "" } else { offset }, self.choose(256) * 16),
            2 if self.choose(64) == 0 => format!("{offset}{}", self.value(0, depth)),
            _ => format!("{offset}(i32.and {} (i32.const 0xfff))", self.local_value(0)),
        }
    }

    fn value(&mut self, of: usize, depth: usize) -> String {
        let ty = TYPES[of];
        if depth == 0 {
            return match self.choose(4) {
                0 => format!("({ty}.const {})", NUMBERS[self.choose(NUMBERS.len())]),
                1 => format!("(global.get $g{of})"),
                _ => self.local_value(of),
            };
        }
        let inner = depth - 1;
        match self.choose(20) {
            0 => format!("({ty}.const {})", NUMBERS[self.choose(NUMBERS.len())]),
            1 | 2 => self.local_value(of),
            3..=6 => format!("({ty}.{} {} {})", self.one_of(&BINARY), self.value(of, inner), self.value(of, inner)),
            7 => format!("({} {})", self.one_of(UNARY[of]), self.value(of, inner)),
            8 | 9 => format!("({ty}.{} {})", self.one_of(LOADS[of]), self.address(inner)),
            10 => {
                let (operation, dividend) = (self.one_of(&DIVIDING), self.local_value(of));
                let divisor = match self.choose(2) {
                    0 => format!("({ty}.const {})", NUMBERS[1 + self.choose(NUMBERS.len() - 1)]),
                    _ => self.local_value(of),
                };
                format!("({ty}.{operation} {dividend} {divisor})")
            }
            11 => {
                let (one, other) = (self.value(of, inner), self.value(of, inner));
                format!("(select {one} {other} {})", self.condition(inner))
            }
            12 => format!("(local.tee {} {})", self.local(of), self.value(of, inner)),
            13 => self.side("block", Some(of), inner),
            14 => self.side("loop", Some(of), inner),
            15 => {
                let (condition, then) = (self.condition(inner), self.side("then", Some(of), inner));
                format!("(if (result {ty}) {condition} {then} {})", self.side("else", Some(of), inner))
            }
            18 | 19 if of == 0 => format!("(call $sum {} {})", self.value(0, inner), self.value(1, inner)),
            18 | 19 => format!("(call $nested {})", self.value(1, inner)),
            16 if of == 0 => format!("(i32.wrap_i64 {})", self.value(1, inner)),
            16 => format!("(i64.{} {})", self.one_of(&["extend_i32_s", "extend_i32_u"]), self.value(0, inner)),
            _ if of == 0 => self.one_of(&["(memory.size)", "(global.get $known)"]).into(),
            _ => format!("(i64.extend_i32_u {})", self.condition(inner)),
        }
    }
}

;; From 8 to 18 o'clock (UTC) the device is read only.
;;
;; In the text form of WebAssembly everything is said by its place in memory: here the header is at 0, the command at 1024 and the
;; answer at 2048. docs/dvd-programs.md has the tables of their fields.
(module
  (memory (export "memory") 1)
  (global (export "sanwire_abi_1") i32 (i32.const 0))

  ;; The header: command, answer, no ranges, no data, no state, and the classes to judge:
  ;; write (04h), discard (08h) and copy target (80h).
  (data (i32.const 0)
    "\00\04\00\00" "\00\08\00\00"
    "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
    "\8c\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")

  (func (export "judge") (result i32)
    (local $hour i64)
    ;; The time of the command, in milliseconds since 1970, is at 80.
    (local.set $hour
      (i64.rem_u (i64.div_u (i64.load offset=1104 (i32.const 0)) (i64.const 3600000)) (i64.const 24)))
    (if (i64.ge_u (i64.sub (local.get $hour) (i64.const 8)) (i64.const 10))
      (then (return (i32.const 1))))                    ;; allow
    (if (i32.eq (i32.load8_u offset=1032 (i32.const 0)) (i32.const 0x35))
      (then (return (i32.const 1))))                    ;; SYNCHRONIZE CACHE (10) writes nothing new
    (if (i32.eq (i32.load8_u offset=1032 (i32.const 0)) (i32.const 0x91))
      (then (return (i32.const 1))))                    ;; nor does (16)
    (i32.store offset=2048 (i32.const 0) (i32.const 0x002707)) ;; DATA PROTECT, WRITE PROTECTED: 07h 27h 00h
    (i32.const 2)))                                     ;; refuse

package durable

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameHeader is what stands before the JSON of a log entry, little-endian:
// length of all that follows the checksum (4 bytes), checksum of the same (4),
// version (2). kfake frames pids.log and groups.log so, we our journal too.
const frameHeader = 10

// appendFrame adds one entry to dst.
func appendFrame(dst []byte, entry any) ([]byte, error) {
	data, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("durable: encoding a log entry: %w", err)
	}
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(2+len(data)))
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint16(dst, persistVersion)
	dst = append(dst, data...)
	binary.LittleEndian.PutUint32(dst[at+4:], crc32.Checksum(dst[at+8:], castagnoli))
	return dst, nil
}

// appendFrames adds entries to dst.
func appendFrames[T any](dst []byte, entries []T) (_ []byte, err error) {
	for _, e := range entries {
		if dst, err = appendFrame(dst, e); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// overgrown says that a log has so many entries that do not count any more that
// it is worth to be written anew. kfake would do so while it runs, on the one
// loop that serves everybody, with an fsync for each producer; the front keeps
// it from that (see its pinned settings), and a start does it instead.
func overgrown(entries, counting int) bool { return entries > 2*counting+1000 }

// nextFrame takes one entry off the front of raw; ok is false when what is
// there is not a whole entry.
func nextFrame(raw []byte) (version uint16, data []byte, size int, ok bool) {
	if len(raw) < frameHeader {
		return 0, nil, 0, false
	}
	length := int64(binary.LittleEndian.Uint32(raw))
	if length < 2 || 8+length > int64(len(raw)) {
		return 0, nil, 0, false
	}
	body := raw[8 : 8+length]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(raw[4:]) {
		return 0, nil, 0, false
	}
	return binary.LittleEndian.Uint16(body), body[2:], int(8 + length), true
}

// readFrames reads a framed log and gives the number of bytes that are whole
// entries, with no file meaning no entries. The rest is the last write, cut
// short; kfake would leave it there and append behind it, and would then never
// read what it appended. An entry that is whole behind one that is not means
// that the file was damaged, which is not ours to mend.
func readFrames[T any](path string) (entries []T, valid, size int, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, 0, nil
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("durable: %w", err)
	}
	for valid < len(raw) {
		version, data, n, ok := nextFrame(raw[valid:])
		if !ok {
			break
		}
		if version != persistVersion {
			return nil, 0, 0, fmt.Errorf("%w: %s: the entry at byte %d has version %d, this broker knows version %d",
				ErrLayout, path, valid, version, persistVersion)
		}
		var entry T
		if err := decodeStrict(data, &entry); err != nil {
			return nil, 0, 0, fmt.Errorf("%w: %s: the entry at byte %d: %w", ErrLayout, path, valid, err)
		}
		entries = append(entries, entry)
		valid += n
	}
	for at := valid + 1; at+frameHeader < len(raw); at++ {
		if _, _, _, ok := nextFrame(raw[at:]); ok {
			return nil, 0, 0, fmt.Errorf("%w: %s: no entry can be read at byte %d but there is one at byte %d; restore the file from a copy",
				ErrDamaged, path, valid, at)
		}
	}
	return entries, valid, len(raw), nil
}

// Package powertest is for tests of what a data directory may look like after a
// power cut. It records what a process does to the directory (strace), and
// makes of that, for any moment, a directory that the disk may have been left
// with: what was forced is there, and of the rest any part that the disk had
// got round to.
package powertest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// traced are the calls that write, name or force files.
var traced = []string{
	"openat", "write", "writev", "pwrite64", "pwritev", "ftruncate", "truncate", "fallocate",
	"fsync", "fdatasync", "syncfs", "sync", "sync_file_range", "rename", "renameat", "renameat2",
	"unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat", "copy_file_range", "sendfile",
}

// longest is the most bytes of one write; a longer one cannot be read back.
const longest = 4 << 20

// Record gives the command line under which a process is recorded to the file
// out. The process is the direct child, which signals reach.
func Record(out string, command ...string) []string {
	return append([]string{
		"strace", "-D", "-f", "--seccomp-bpf", "-ttt", "-y", "-xx", "-s", strconv.Itoa(longest),
		"-e", "signal=kill", "-e", "trace=" + strings.Join(traced, ","), "-o", out,
	}, command...)
}

// Ended says that a recording is complete: strace writes on a little after the
// process has gone.
func Ended(recording []byte) bool {
	lines := bytes.Split(bytes.TrimSpace(recording), []byte("\n"))
	pid, _, _ := bytes.Cut(lines[0], []byte(" "))
	for _, l := range lines {
		if bytes.HasPrefix(l, append(bytes.Clone(pid), ' ')) && bytes.Contains(l, []byte("+++ ")) {
			return true
		}
	}
	return false
}

// call is one system call of a recording.
type call struct {
	at    time.Time // when it began, or when it was known to have ended
	begun int       // number of calls that had ended when it began
	name  string
	args  []string
	ret   int64
}

// calls reads a recording. The order is that in which the calls ended.
func calls(r io.Reader) (all []call, err error) {
	type half struct {
		text  string
		begun int
	}
	unfinished := make(map[string]half)
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		pid, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		stamp, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
		seconds, micros, ok := strings.Cut(stamp, ".")
		s, err1 := strconv.ParseInt(seconds, 10, 64)
		us, err2 := strconv.ParseInt(micros, 10, 64)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("powertest: a line without a time: %.80q", line)
		}
		begun := len(all)
		switch head, cut := strings.CutSuffix(text, " <unfinished ...>"); {
		case strings.HasPrefix(text, "+++ "), strings.HasPrefix(text, "--- "):
			continue
		case cut:
			unfinished[pid] = half{head, begun}
			continue
		case strings.HasPrefix(text, "<... "):
			_, tail, _ := strings.Cut(text, " resumed>")
			h := unfinished[pid]
			text, begun = h.text+tail, h.begun
			delete(unfinished, pid)
		}
		c, err := parseCall(text)
		if err != nil {
			return nil, err
		}
		c.at, c.begun = time.Unix(s, us*1000), begun
		all = append(all, c)
	}
}

// parseCall reads name(arguments) = result.
func parseCall(text string) (c call, err error) {
	end := strings.LastIndex(text, ") ")
	name, _, ok := strings.Cut(text, "(")
	_, result, isResult := strings.Cut(text[max(end, 0):], "= ")
	if !ok || !isResult || end < 0 {
		return call{}, fmt.Errorf("powertest: not a call: %.200q", text)
	}
	c.name = name
	number, _, _ := strings.Cut(result, " ")
	number, _, _ = strings.Cut(number, "<")
	if number == "?" { // the process ended in it
		c.ret = -1
	} else if c.ret, err = strconv.ParseInt(number, 0, 64); err != nil {
		return call{}, fmt.Errorf("powertest: the result of %.200q: %w", text, err)
	}
	// All strings are in hexadecimal, so a comma is between arguments or in a
	// list, and no list matters here.
	for _, arg := range strings.Split(text[len(name)+1:end], ", ") {
		c.args = append(c.args, strings.TrimSpace(arg))
	}
	return c, nil
}

// descriptor is the path behind a file descriptor argument, as it was when the
// call began. The numbers say less: they are used again before strace has told
// that they are free.
func (c *call) descriptor(n int) (string, error) {
	_, path, _ := strings.Cut(c.args[n], "<")
	name, err := unhex(strings.TrimSuffix(path, ">"))
	return string(name), err
}

// path is a path argument that is relative to the directory before it.
func (c *call) path(dir, n int) (string, error) {
	base, err := c.descriptor(dir)
	name, err2 := c.data(n)
	if filepath.IsAbs(string(name)) {
		base = ""
	}
	return filepath.Join(base, string(name)), errors.Join(err, err2)
}

func (c *call) data(n int) ([]byte, error) {
	quoted := c.args[n]
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return nil, fmt.Errorf("powertest: %s: not a whole string: %.80q", c.name, quoted)
	}
	return unhex(quoted[1 : len(quoted)-1])
}

func (c *call) number(n int) (int64, error) { return strconv.ParseInt(c.args[n], 0, 64) }

// unhex reads \x61\x62.
func unhex(s string) ([]byte, error) {
	out := make([]byte, 0, len(s)/4)
	for len(s) > 0 {
		if len(s) < 4 || s[:2] != `\x` {
			return nil, fmt.Errorf("powertest: %.40q is not in hexadecimal", s)
		}
		b, err := strconv.ParseUint(s[2:4], 16, 8)
		if err != nil {
			return nil, err
		}
		out, s = append(out, byte(b)), s[4:]
	}
	return out, nil
}

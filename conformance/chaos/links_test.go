package chaos

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo is a server that sends back what it reads.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// say sends a byte on the connection and waits up to a while for it to come back.
func say(c net.Conn, within time.Duration) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

func dial(t *testing.T, l *link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.proxy.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestSpoiledLink(t *testing.T) {
	closed := func(err error) bool {
		return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	}
	silent := func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
	for how, want := range map[spoil]func(error) bool{cut: closed, reset: closed, hole: silent, deaf: silent, slow: silent} {
		t.Run(string(how), func(t *testing.T) {
			ls := newLinks()
			l, err := ls.add("link", "127.0.0.1:0", echo(t))
			if err != nil {
				t.Fatal(err)
			}
			before := dial(t, l)
			if err := say(before, time.Minute); err != nil {
				t.Fatal(err)
			}
			limit := time.Minute
			if how != cut && how != reset { // then nothing will come
				limit = 100 * time.Millisecond
			}
			if err := l.spoil(how); err != nil {
				t.Fatal(err)
			}
			if err := say(before, limit); !want(err) {
				t.Errorf("spoiled: %v", err)
			}
			if err := l.heal(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := say(dial(t, l), time.Minute); err != nil {
				t.Errorf("healed: %v", err)
			}
			ls.stop()
			if idle := ls.awaitTraffic(t.Context()); len(idle) > 0 {
				t.Errorf("the counters say that nothing passed %v", idle)
			}
		})
	}
}

func TestLinkWithoutTrafficIsNamed(t *testing.T) {
	ls := newLinks()
	if _, err := ls.add("unused", "127.0.0.1:0", echo(t)); err != nil {
		t.Fatal(err)
	}
	ls.stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if idle := ls.awaitTraffic(ctx); len(idle) != 2 {
		t.Errorf("idle = %v, want both directions", idle)
	}
}

package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
)

var errNoPort = errors.New("node: no free port between 10000 and 20000 on 127.0.0.1")

// FreeAddr finds an address of this machine that nobody listens on now. It stays
// below the ports that systems give to outgoing connections and to listeners on
// port 0: one of those could sit on it before the node does, or while the node
// is down. (The clusters of scripts/kafka are above 20000.)
func FreeAddr(ctx context.Context) (string, error) {
	for range 1000 {
		var random [2]byte
		_, _ = rand.Read(random[:]) // it never fails
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+binary.BigEndian.Uint16(random[:])%10_000)
		if ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr); err == nil {
			return addr, ln.Close()
		}
	}
	return "", errNoPort
}

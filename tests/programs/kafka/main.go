// Kafka is a broker of Kafka's protocol that keeps what it is sent in memory. It tells
// clients another address than the one where it listens, as brokers behind a Service do.
//
// Usage: kafka LISTENS=ADVERTISED
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

// advertised is a listener that says it listens elsewhere.
type advertised struct {
	net.Listener
	address *net.TCPAddr
}

// Addr returns what clients are told.
func (a advertised) Addr() net.Addr { return a.address }

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(pair string) error {
	at, told, _ := strings.Cut(pair, "=")
	address, err := net.ResolveTCPAddr("tcp", told)
	if err != nil {
		return err
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "letters"), kfake.ListenFn(func(network, _ string) (net.Listener, error) {
		l, err := net.Listen(network, at)
		return advertised{l, address}, err
	}))
	if err != nil {
		return err
	}
	defer broker.Close()
	fmt.Println("serves", broker.ListenAddrs())
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, os.Interrupt)
	<-ends
	return nil
}

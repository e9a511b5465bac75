package programs

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// broker is the variable that names the program of tests/programs/kafka.
const broker = "HEADGATE_KAFKA"

// kafka has two brokers, each of which tells clients the address of the Service that leads to it. A consumer
// stays connected while the backends change.
var kafka = program{
	name: "Kafka's protocol", needs: []string{"kcat", os.Getenv(broker)}, port: 9092, outside: 9192,
	serve: func(r *rig) {
		for at, p := range map[uint16]path{9092: {}, 9192: {nodePort: true}} {
			r.serve("server", r.server(at), os.Getenv(broker), fmt.Sprintf("%s=%s", r.server(at), r.at(p, false)))
		}
	},
	ask: func(c *client) error {
		if err := c.run("kcat", "-b", c.at.String(), "-L", "-m", "3"); err != nil {
			return err
		}
		consumer, err := c.start("kcat", "-b", c.at.String(), "-C", "-t", "letters", "-u", "-q", "-o", "beginning") // which does not end
		if err != nil {
			return err
		}
		return c.twice(func(letter string) error {
			letter = fmt.Sprint(letter, " ", time.Now().UnixNano()) // those of other clients are there, too
			producer, err := c.start("kcat", "-b", c.at.String(), "-P", "-t", "letters")
			if err != nil {
				return err
			}
			if err := errors.Join(producer.says(letter), producer.ends()); err != nil {
				return err
			}
			_, err = consumer.hears(letter)
			return err
		})
	},
}

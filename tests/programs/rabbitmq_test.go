package programs

import (
	"fmt"
	"os"
	"path/filepath"
)

// rabbitMQ has a consumer wait for letters, one before and one after the backends change.
var rabbitMQ = program{
	name: "RabbitMQ", needs: []string{"/usr/lib/rabbitmq/bin/rabbitmq-server", "amqp-publish", "amqp-consume", "amqp-declare-queue"}, port: 5672,
	serve: func(r *rig) {
		dir := r.dir
		config := filepath.Join(dir, "rabbitmq.conf")
		text := fmt.Sprintf("loopback_users = none\nlisteners.tcp.1 = %s\n", r.server(5672))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
		env := []string{"HOME=" + dir, "RABBITMQ_NODENAME=hg@localhost", "RABBITMQ_CONFIG_FILE=" + config, "RABBITMQ_CONF_ENV_FILE=/dev/null",
			"RABBITMQ_MNESIA_BASE=" + dir, "RABBITMQ_LOG_BASE=" + dir, "RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "plugins"),
			"RABBITMQ_FEATURE_FLAGS_FILE=" + filepath.Join(dir, "flags"), "RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid")}
		r.serve("server", r.server(5672), "env", append(env, "/usr/lib/rabbitmq/bin/rabbitmq-server")...)
	},
	ask: func(c *client) error {
		const queue = "letters"
		url := fmt.Sprintf("amqp://guest:guest@%s", c.at)
		if err := c.run("amqp-declare-queue", "-u", url, "-q", queue); err != nil {
			return err
		}
		consumer, err := c.start("amqp-consume", "-u", url, "-q", queue, "-c", "2", "cat")
		if err != nil {
			return err
		}
		err = c.twice(func(letter string) error {
			if err := c.run("amqp-publish", "-u", url, "-r", queue, "-b", letter+"\n"); err != nil {
				return err
			}
			_, err := consumer.hears(letter)
			return err
		})
		if err != nil {
			return err
		}
		return consumer.ends()
	},
}

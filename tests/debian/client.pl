# A program of AnyEvent::RabbitMQ: confirms, dead letters, a large body.
use strict;
use warnings;
use AnyEvent;
use AnyEvent::RabbitMQ;

my ($port, $user, $password, $host) = @ARGV;
my $amqp = AnyEvent::RabbitMQ->new->load_xml_spec;

# What a call brings, or why it failed.
sub call {
    my ($object, $method, %how) = @_;
    my $done = AE::cv;
    $object->$method(
        %how,
        on_success => sub { $done->send(shift) },
        on_failure => sub { $done->croak("$method: @_") },
    );
    return $done->recv;
}

my %server = (host => '127.0.0.1', port => $port, user => $user, vhost => $host, timeout => 20);
call($amqp, 'connect', %server, pass => $password);
my $channel = call($amqp, 'open_channel', on_close => sub { });
my %dead = ('x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => 'pl.dead');
call($channel, 'declare_queue', queue => 'pl.dead', durable => 1);
call($channel, 'declare_queue', queue => 'pl.q', durable => 1, arguments => \%dead);
call($channel, 'confirm');

my ($confirmed, $all) = (0, AE::cv);
for my $body ((map { "m$_" } 1 .. 1000), 'x' x (10 * 2**20)) {
    my $acked = sub { $all->send if ++$confirmed == 1001 };
    my %to = (exchange => '', routing_key => 'pl.q');
    $channel->publish(%to, body => $body, on_ack => $acked, on_nack => sub { $all->croak('nack') });
}
$all->recv;
print "confirmed $confirmed\n";

my ($taken, $largest, $sender, $empty) = (0, 0, '', AE::cv);
my $take = sub {
    my $message = shift;
    my $tag = $message->{deliver}->method_frame->delivery_tag;
    my $bytes = length $message->{body}->to_raw_payload;
    $largest = $bytes if $bytes > $largest;
    $sender = $message->{header}->user_id // '';
    if (++$taken % 10) { $channel->ack(delivery_tag => $tag) }
    else { $channel->reject(delivery_tag => $tag, requeue => 0) }
    $empty->send if $taken == 1001;
};
call($channel, 'qos', prefetch_count => 50);
call($channel, 'consume', queue => 'pl.q', no_ack => 0, on_consume => $take);
$empty->recv;
print "taken $taken, the largest $largest, by $sender\n";

my ($dead, $ends) = (0, time + 30);
while ($dead < 100 && time < $ends) {
    my $left = call($channel, 'declare_queue', queue => 'pl.dead', durable => 1);
    $dead = $left->method_frame->message_count;
}
print "dead $dead\n";
call($amqp, 'close');
